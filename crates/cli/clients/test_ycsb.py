"""Tests of the judgement in ycsb.py: the numbers that YCSB prints, and runs that fail."""

import unittest

import ycsb

OUTPUT = """[OVERALL], RunTime(ms), 5002
[OVERALL], Throughput(ops/sec), 1234.5
[READ], Operations, 10
[READ], 99thPercentileLatency(us), 2500
[READ], Return=OK, 10
[VERIFY], Return=OK, 10
"""


class Judgement(unittest.TestCase):
    def test_a_good_run_has_no_problem(self):
        numbers = ycsb.figures(OUTPUT)
        self.assertEqual(numbers["OVERALL", "Throughput(ops/sec)"], 1234.5)
        self.assertEqual(ycsb.judge(numbers, reads=True), [])
        self.assertEqual(ycsb.cells([numbers]), {"per_second": 1234, "p99_ms": {"READ": 2.5}})

    def test_failed_operations_and_wrong_values_are_problems(self):
        for line in ("[READ], Return=NOT_FOUND, 1", "[UPDATE], Return=ERROR, 1", "[VERIFY], Return=UNEXPECTED_STATE, 1"):
            self.assertEqual(len(ycsb.judge(ycsb.figures(OUTPUT + line + "\n"), reads=True)), 1)

    def test_a_run_that_verified_nothing_is_a_problem_if_it_reads(self):
        numbers = ycsb.figures(OUTPUT.replace("[VERIFY], Return=OK, 10\n", ""))
        self.assertEqual(ycsb.judge(numbers, reads=True), ["nothing was verified"])
        self.assertEqual(ycsb.judge(numbers, reads=False), [])
        self.assertEqual(ycsb.judge({}, reads=False), ["no operation ran"])


if __name__ == "__main__":
    unittest.main()
