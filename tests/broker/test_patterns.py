"""Regular expressions in RE2's syntax. The expected matches were observed with Kafka 4.4.0, which uses RE2/J."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.broker.patterns import whole_match


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("la.", ["lab", "la-"], ["la", "xlab", "labx", "la\n"]),
        ("", [""], ["a"]),
        ("a|bc|", ["a", "bc", ""], ["ab", "abc", "c"]),
        ("a*", ["", "a", "aaa"], ["b", "aab"]),
        ("a+b?", ["a", "aab"], ["", "b", "abb"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaaa"], ["a"]),
        ("a{1,3}", ["a", "aaa"], ["", "aaaa"]),
        ("a{0}b", ["b"], ["ab"]),
        ("(ab|c){2}?", ["abab", "cab", "cc"], ["ab", "abcc"]),
        ("a{,3}", ["a{,3}"], ["aa"]),
        ("x{", ["x{"], ["x"]),
        ("(?P<name>l)(?<other>a).*", ["la", "lab"], ["l"]),
        ("(?:ab)+", ["ab", "abab"], ["aba"]),
        ("(?i)LA[b-d]", ["lab", "LaD"], ["lae"]),
        ("(?i:L)A", ["lA", "LA"], ["la"]),
        ("(?i)[^a]", ["b", "B"], ["a", "A"]),
        ("(?i)a(?-i)b", ["Ab", "ab"], ["aB"]),
        ("(?s)a.", ["a\n", "ab"], ["a"]),
        ("ab(?i)+c(?)", ["abbC"], ["ab"]),
        ("(?m)a$\n^b", ["a\nb"], ["ab"]),
        ("^a$", ["a"], ["a\n", "ba"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"\bab\b-\Bx?", ["ab-"], ["ab-x"]),
        (r"[[:alpha:]]+\d*", ["ab12", "a"], ["12", "é"]),
        ("[[:^digit:]-]", ["a", "-"], ["1"]),
        (r"\pL+", ["aé"], ["a1"]),
        (r"\p{Lu}\P{Lu}", ["Aa"], ["aa", "AA"]),
        (r"\p{^Nd}", ["a"], ["1"]),
        (r"\p{Any}", ["a", "\n"], [""]),
        (r"\Qa.*\E.*", ["a.*", "a.*b"], ["abc"]),
        (r"\Qa*", ["a*"], ["aa"]),
        (r"\w\W\s\S\D", ["a- xy"], ["aa xy"]),
        (r"\x41\x{1F600}\101\0\t", ["A😀A\0\t"], ["A"]),
        (r"[]a]", ["]", "a"], ["b"]),
        (r"[^]a]", ["b"], ["]", "a"]),
        (r"[a-c\-\]x-]", ["b", "-", "]", "x"], ["d"]),
        (r"[\d\s.]", ["1", " ", "."], ["a"]),
        (r"\.\-\\", [".-\\"], ["a-\\"]),
        ("größe", ["größe"], ["grösse"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = whole_match(pattern)
    assert [text for text in matching + others if matches(text)] == matching


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "(?=b)", "(?!b)", "(?<=b)a", "(?", "(?x)a", "(?P<>a)"),
        *("[", "[a", "[]", "[b-a]", "[[:bogus:]]"),
        *("*", "+a", "|*", "(*)", "a**", "a*+", "a{2}{3}", "a??+"),
        *("x{1001}", "x{2,1}", "x{1,0}", "{2}", "(((a{1000}){1000}){1000})"),
        *("\\", r"(a)\1", r"\8", r"\h", r"\Z", r"\p", r"\p{Bogus}", r"\pX", r"\x", r"\x{110000}"),
    ],
)
def test_what_is_no_expression(pattern: str) -> None:
    with pytest.raises(ValueError):
        whole_match(pattern)


def test_time_is_bounded() -> None:
    """Python's ``re`` would never finish."""
    assert not whole_match("(a*)*(a|aa)*(a*)*b")("a" * 500)


@pytest.mark.parametrize("pattern", ["((a?b?c?d?e?f?g?h?i?j?){1000}){4}x", r"\pL{1000}"])
def test_large_expressions_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"repetition size|too large"):
        whole_match(pattern)


# Expressions that mean the same to Python.
_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join).map("({})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            "(?:{0[0]}){0[1]}".format
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=300)
@given(_PATTERNS, st.text("abc", max_size=6))
def test_the_same_as_python_where_both_mean_the_same(pattern: str, text: str) -> None:
    assert whole_match(pattern)(text) == (re.fullmatch(pattern, text) is not None)
