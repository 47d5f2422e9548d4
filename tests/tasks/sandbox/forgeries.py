"""Attacks on the verdict: `answer(n)` should return n * n, and no program here does so for n above 5.

None of them may pass, with walls or without: the tests run in another process, which only takes plain data.
"""

from __future__ import annotations

TESTS = """
def check(f):
    for n in range(9):
        assert f(n) == n * n, f"secret {n * n}"
check(answer)
"""
_LIAR = """
class Liar(BASE):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def answer(n): return Liar(VALUE)
"""

FORGERIES: dict[str, str] = {
    "leave with success": r"""
import sys
sys.exit(0)
""",
    "leave at once": r"""
import os
os._exit(0)
""",
    "leave when asked": r"""
import os
def answer(n):
    os._exit(0)
""",
    "leave at exit": r"""
import atexit, os
atexit.register(os._exit, 0)
def answer(n):
    raise SystemExit(0)
""",
    "print the verdict": r"""
print('ok')
import sys
sys.stderr.write('ok')
def answer(n): pass
""",
    "write the verdict everywhere": r"""
import os
for fd in range(64):
    try:
        os.write(fd, b'okok')
    except OSError:
        pass
""",
    "an object that equals everything": r"""
class Any:
    def __eq__(self, other): return True
def answer(n): return Any()
""",
    "an equality that leaves": r"""
class Any:
    def __eq__(self, other): raise SystemExit(0)
def answer(n): return Any()
""",
    "an answer that answers": r"""
class Any:
    def __eq__(self, o): return 1
    def __call__(self, n): return self
answer = Any()
""",
    "another range": r"""
def range(n): return []
def answer(n): return 0
""",
    "another range among the builtins": r"""
import builtins
builtins.range = lambda n: []
def answer(n): return 0
""",
    "another check": r"""
def check(f): pass
def answer(n): return 0
""",
    "another AssertionError": r"""
import builtins
class AssertionError(Exception):
    def __new__(cls, *a): raise SystemExit(0)
builtins.AssertionError = AssertionError
def answer(n): return 0
""",
    "read the tests from the stack": r"""
import sys
def answer(n):
    frame = sys._getframe()
    while frame:
        if 'n' in frame.f_locals and 'f' in frame.f_locals:
            return frame.f_locals['n'] ** 2
        frame = frame.f_back
""",
    "read the tests from memory": r"""
import gc
def answer(n):
    for thing in gc.get_objects():
        if isinstance(thing, dict) and 'check' in thing:
            return n * n
""",
    "read the tests from the source": r"""
import linecache, sys
def answer(n):
    return n * n if 'secret' in str(sys.argv) + str(linecache.cache) else 0
""",
    "trace the tests": r"""
import sys
def trace(frame, event, arg):
    if 'f' in frame.f_locals:
        sys.exit(0)
    return trace
sys.settrace(trace)
def answer(n): return 0
""",
    "learn from the error": r"""
known = {}
def answer(n):
    try:
        raise AssertionError
    except AssertionError as error:
        return known.get(n, str(error.__context__))
""",
    "answer without being asked": r"""
import os, struct
for fd in range(3, 16):
    try:
        os.write(fd, struct.pack('<I', 13) + b't\3\0\0\0b\1\0\0\0!nn')
    except OSError:
        pass
""",
    "noise on the wire": r"""
import os
def answer(n):
    for fd in range(3, 16):
        try:
            os.write(fd, b'\xff' + os.urandom(99))
        except OSError:
            pass
""",
    "a message without end": r"""
import os
def answer(n):
    for fd in range(3, 16):
        try:
            os.write(fd, b'\xff' * 4)
        except OSError:
            pass
""",
    "call the judge's own functions": r"""
import gc
def answer(n):
    for thing in gc.get_objects():
        if type(thing).__name__ == 'Peer':
            return thing.ask('call', eval, ['n * n'], {}) or thing.ask('getattr', check, '__globals__')
""",
    "replace the judge's modules": r"""
import sys
for name in list(sys.modules):
    if name.startswith('ripple'):
        sys.modules[name] = None
def answer(n): return 0
""",
    "an exception that tests may expect": r"""
def answer(n): raise StopIteration(n * n)
""",
    "a list without end": r"""
def answer(n):
    return list(range(10 ** 8))
""",
    "a nest without end": r"""
def answer(n):
    nest = []
    for _ in range(10 ** 5):
        nest = [nest]
    return nest
""",
    "a circle": r"""
def answer(n):
    circle = []
    circle.append(circle)
    return circle
""",
    "crash": r"""
import ctypes
def answer(n):
    return ctypes.string_at(0)
""",
    "a number that equals everything": _LIAR.replace("BASE", "int").replace("VALUE", "7"),
    "a text that equals everything": _LIAR.replace("BASE", "str").replace("VALUE", "''"),
    "a list that equals everything": _LIAR.replace("BASE", "list").replace("VALUE", ""),
    "a dictionary that equals everything": _LIAR.replace("BASE", "dict").replace("VALUE", ""),
}

# What only some tests fall for: name -> (a program, its tests).
RIGHT = "import math\ndef answer(n): return n * n\n"
LOOP = "for square, n in zip(map(answer, range(9)), range(9)):\n    assert square == n * n\n"
NEAR = "assert math.isclose(answer(3), 9.0)"
PARTICULAR: dict[str, tuple[str, str]] = {
    "an exception that ends a loop": ("def answer(n): raise StopIteration", LOOP),
    "an exception that ends all()": (
        "def answer(n): raise StopIteration",
        "assert all(map(lambda n: answer(n) == n * n, range(9)))",
    ),
    "an exception of its own that ends a loop": (
        "class Last(StopIteration): pass\ndef answer(n): raise Last",
        LOOP,
    ),
    "another math": (
        "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef answer(n): return 0",
        NEAR,
    ),
    "a module with another isclose": (
        "import math\nmath.isclose = lambda *a, **k: True\ndef answer(n): return 0",
        NEAR,
    ),
    "a module of its own": (
        "import sys\nmath = type(sys)('math')\nmath.isclose = lambda *a, **k: True\ndef answer(n): return 0",
        NEAR,
    ),
}
