"""Tests of the judgement in run.py: which results fail a campaign, and what counts as not claimed."""

import pathlib
import tempfile
import types
import unittest

import run

SUITE = types.SimpleNamespace(name="s", framework="F", version="1", tests="its own tests")


def judged(tests, known=None):
    figures, problems = run.judge(SUITE, tests, known or {}, {"LPUSH"})
    return figures, problems


class Judgement(unittest.TestCase):
    def test_results_are_counted(self):
        figures, problems = judged([("a", "passed", ""), ("b", "skipped", ""), ("c", "passed", "")])
        self.assertEqual([figures[name] for name in ("run", "passed", "failed", "skipped")], [2, 2, 0, 1])
        self.assertEqual(problems, [])

    def test_a_failure_that_is_not_listed_is_a_problem(self):
        figures, problems = judged([("a", "passed", ""), ("b", "failed", "wrong\nmore")])
        self.assertEqual(problems, ["s: b fails: wrong"])
        self.assertEqual(figures["failed"], 1)

    def test_an_unknown_command_is_not_claimed_only_if_it_is_listed_as_missing(self):
        figures, problems = judged([("a", "passed", ""), ("b", "failed", "ERR unknown command 'lpush', with")])
        self.assertEqual((figures["run"], figures["not_claimed"], problems), (1, 1, []))
        _, problems = judged([("a", "passed", ""), ("b", "failed", "ERR unknown command 'GET', with")])
        self.assertEqual(len(problems), 1)

    def test_a_listed_failure_has_its_reason(self):
        known = {"failed": {"x.b*": "why"}, "not-claimed": {"x.c[1]": "what"}}
        tests = [("x.a", "passed", ""), ("x.b[1]", "failed", "e"), ("x.b[2]", "failed", "e"), ("x.c[1]", "failed", "e")]
        figures, problems = judged(tests, known)
        self.assertEqual(figures["reasons"], [{"tests": 2, "reason": "why"}])
        self.assertEqual((figures["failed"], figures["not_claimed"], problems), (2, 1, []))

    def test_a_listed_test_that_passes_or_does_not_run_is_a_problem(self):
        known = {"failed": {"a": "why", "gone": "why"}}
        _, problems = judged([("a", "passed", "")], known)
        self.assertEqual(len(problems), 2)

    def test_a_suite_has_its_own_table_and_the_shared_one(self):
        suite = types.SimpleNamespace(name="s-3", known="s")
        known = {"s": {"failed": {"a": "why"}}, "s-3": {"failed": {"b": "why"}}, "s-2": {"failed": {"c": "why"}}}
        self.assertEqual(run.listed(suite, known), {"failed": {"a": "why", "b": "why"}, "not-claimed": {}})

    def test_a_suite_without_a_passed_test_is_a_problem(self):
        self.assertEqual(judged([])[1], ["s: no test passed"])

    def test_checks_without_an_end_have_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "tests.txt"
            report.write_text("ok a\nnot ok b: text: more\nend\n")
            self.assertEqual(list(run.checks(report)), [("a", "passed", ""), ("b", "failed", "text: more")])
            report.write_text("ok a\nException\n")
            self.assertEqual([outcome for _, outcome, _ in run.checks(report)], ["failed", "passed"])

    def test_the_missing_commands_are_those_of_the_document(self):
        missing = run.missing_commands()
        self.assertTrue({"DEBUG", "MIGRATE", "PFDEBUG"} <= missing)
        self.assertFalse({"GET", "ACL", "SCAN", "HSET", "XADD", "EVAL", "FCALL", "PFADD", "SORT"} & missing)


if __name__ == "__main__":
    unittest.main()
