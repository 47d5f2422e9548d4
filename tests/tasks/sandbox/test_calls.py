"""Honest programs pass their tests across the two processes as they would within one."""

from __future__ import annotations

import pytest

from ripple.tasks.sandbox import Program, run

HONEST = {  # name -> a program, and its tests behind the line
    "plain values": r"""
def same(x): return x
---
for x in (0, -1, 2**70, 1.5, float('inf'), 'ä\ud800', b'x', None, True, (1, [2]), {3: {4}}, 1j, range(3)):
    assert same(x) == x and type(same(x)) is type(x), x
assert same(float('nan')) != same(float('nan'))
""",
    "types": """
def kind(x): return type(x)
---
assert kind(1) is int and kind('') == str and kind([]) != tuple
""",
    "subclasses": """
from collections import namedtuple, Counter, defaultdict
from enum import IntEnum
P = namedtuple('P', 'x y')
class E(IntEnum):
    A = 3
def f(): return P(1, 2), Counter('aab'), defaultdict(list, {1: [2]}), E.A
---
assert f() == ((1, 2), {'a': 2, 'b': 1}, {1: [2]}, 3)
""",
    "standard types": """
from fractions import Fraction
from datetime import date, timedelta
from collections import deque
def f(day): return Fraction(1, 3), day + timedelta(1), deque([1], 3)
---
from datetime import date
from fractions import Fraction
from collections import deque
assert f(date(2020, 1, 1)) == (Fraction(1, 3), date(2020, 1, 2), deque([1], 3))
""",
    "standard types as arguments": """
def f(c, d): return sorted(c.most_common(1)), d.popleft()
---
from collections import Counter, deque
assert f(Counter('aab'), deque([7])) == ([('a', 2)], 7)
""",
    "arguments that are changed": """
def sort(xs, seen, *, table): xs.sort(); seen.add(1); table['x'] = xs[0]
---
xs, seen, table = [3, 1], set(), {}
assert sort(xs, seen, table=table) is None
assert xs == [1, 3] and seen == {1}
""",
    "generators": """
def count():
    n = 0
    while True:
        yield n
        n += 1

---
import itertools
assert list(itertools.islice(count(), 3)) == [0, 1, 2]
""",
    "iterators as arguments": """
def total(xs): return sum(xs)
---
assert total(x for x in [1, 2]) == total(map(int, '12'))
""",
    "functions as arguments": """
def apply(f, xs): return [f(x) for x in xs]
---
assert apply(lambda x: x + 1, [1]) == [2] and apply(len, ['ab']) == [2] and apply(str, [1]) == ['1']
""",
    "functions as results": """
def adder(n): return lambda x: x + n
---
assert adder(2)(3) == 5
""",
    "its own classes": """
class Node:
    def __init__(self, value): self.value, self.left = value, None
    def __len__(self): return 1 + (len(self.left) if self.left else 0)
    def __repr__(self): return f'<{self.value}>'
def depth(node): return len(node)
---
root = Node(1)
root.left = Node(2)
assert depth(root) == 2 == len(root) and root.left.value == 2
assert root == root and root.left != root and repr(root) == '<1>' and root
""",
    "containers of its own": """
class Box(dict): pass
class Bag:
    def __init__(self): self.d = {}
    def __getitem__(self, k): return self.d[k]
    def __setitem__(self, k, v): self.d[k] = v
    def __contains__(self, k): return k in self.d
    def __iter__(self): return iter(self.d)

---
bag = Bag()
bag['a'] = 1
assert bag['a'] == 1 and 'a' in bag and 'b' not in bag and list(bag) == ['a']
""",
    "exceptions": """
class Odd(ValueError): pass
def half(n):
    if n % 2:
        raise Odd('odd')
    return 1 // n
---
for n, kind in ((1, ValueError), (0, ZeroDivisionError)):
    try:
        half(n)
        assert False
    except kind as error:
        assert str(error)
""",
    "constants and modules": """
import math
LIMIT = [7]
def f(): return math.pi
---
assert math.isclose(f(), 3.1416, abs_tol=1e-3)
assert LIMIT == [7]
""",
    "recursion through functions defined by the tests": """
def twice(f): return lambda x: f(f(x))
---
def check(candidate):
    def inner(x): return x * 3
    assert candidate(inner)(2) == 18
check(twice)
""",
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes(name: str) -> None:
    code, tests = HONEST[name].split("---")
    assert run(Program(code, tests)).reason == "ok"


def test_a_program_may_define_a_builtin_only_if_it_was_asked_for() -> None:
    code = "def sum(a, b): return a + b"
    assert run(Program(code, "assert sum(2, 3) == 5", asked=("sum",))).passed
    assert run(Program(code, "assert sum(2, 3) == 5")).reason.startswith("TypeError")


def test_a_program_may_define_a_standard_modules_name_only_if_it_was_asked_for() -> None:
    code = "def calendar(year): return [year]"
    assert run(Program(code, "assert calendar(2000) == [2000]", asked=("calendar",))).passed
    assert "'module' object is not callable" in run(Program(code, "assert calendar(2000) == [2000]")).reason


def test_what_is_missing_or_wrong_is_said() -> None:
    assert run(Program("", "assert f(1) == 1")).reason == "NameError: name 'f' is not defined"
    assert run(Program("", "math.pi")).reason.startswith("NameError: name 'math' is not defined")
    assert run(Program("def f(): raise StopIteration(3)", "f()")).reason == "RuntimeError: StopIteration: 3"
    assert run(Program("def f(:", "assert f(1) == 1")).reason.startswith("SyntaxError")
    assert run(Program("def f(x): return x[9]", "f([])")).reason == "IndexError: list index out of range"
    assert run(Program("def f(x): return x", "f(object())")).reason.startswith("TypeError: a object")
    assert (
        run(Program("class Odd(Exception): pass\ndef f(): raise Odd('x')", "f()")).reason
        == "Exception: Odd: x"
    )


def test_leaving_is_seen_even_where_the_tests_catch_everything() -> None:
    tests = "try:\n    f()\nexcept:\n    pass"
    assert run(Program("import os\ndef f(): os._exit(0)", tests)).reason == "stopped early"
    assert run(Program("def f():\n    while True: pass", tests), timeout_s=1.0).reason == "timeout"
