// Dark or light: as the system says, or as the reader chose.

const NEXT = {"": "light", light: "dark", dark: ""};
const NAMES = {"": "Theme: system", light: "Theme: light", dark: "Theme: dark"};

/** Have a button go through system, light and dark. */
export function themeButton(button) {
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = NAMES[theme];
    try {
      localStorage.setItem("ripple-theme", theme);
    } catch {
      // a page without storage forgets the choice
    }
  };
  button.addEventListener("click", () => set(NEXT[document.documentElement.dataset.theme ?? ""] ?? ""));
  let stored = "";
  try {
    stored = localStorage.getItem("ripple-theme") ?? "";
  } catch {
    // as above
  }
  set(stored in NAMES ? stored : "");
}
