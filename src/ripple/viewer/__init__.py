"""The viewer in a browser: the playground's files (`static/`), and a trace as one self-contained page."""
