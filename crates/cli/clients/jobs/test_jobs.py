"""Tests of the judgement in jobs.py with invented records of rounds."""

import unittest

import jobs

SAFE = jobs.System("safe", "", 1, 4, 0, False)
UNSAFE = jobs.System("unsafe", "", 1, 4, 2, True)


class Judgement(unittest.TestCase):
    def test_jobs_that_ran_or_wait_are_not_missing(self):
        self.assertEqual(jobs.elsewhere(SAFE, {1, 2, 3}, {1}, {2, 3, 4}, {2, 3, 4}, set()), (set(), []))

    def test_a_job_that_the_server_has_forgotten_is_noticed(self):
        missing, problems = jobs.elsewhere(SAFE, {1, 2, 3}, {1}, {3}, {3}, set())
        self.assertEqual((missing, len(problems)), ({2}, 1))

    def test_workers_may_have_as_many_jobs_as_they_take_and_no_more(self):
        self.assertEqual(jobs.elsewhere(UNSAFE, {1, 2, 3}, set(), {3}, {3}, set()), ({1, 2}, []))
        _, problems = jobs.elsewhere(UNSAFE, {1, 2, 3, 4}, set(), {4}, {4}, set())
        self.assertEqual(len(problems), 1)

    def test_a_job_that_an_earlier_kill_has_cost_does_not_count_again(self):
        self.assertEqual(jobs.elsewhere(SAFE, {1, 2}, {2}, set(), set(), {1}), (set(), []))

    def test_a_missing_job_that_is_newer_than_a_job_in_the_queue_was_never_in_the_queue(self):
        _, problems = jobs.elsewhere(UNSAFE, {1, 2, 3}, {1}, {1, 2}, {2}, set())
        self.assertEqual(problems, ["job 3 is gone, but the older job 2 waits"])
        # Job 2 is with a worker, and the queue is empty.
        self.assertEqual(jobs.elsewhere(UNSAFE, {1, 2, 3}, {1}, {1, 2}, set(), set()), ({3}, []))

    def test_a_job_that_ran_although_the_server_lost_it_is_not_lost(self):
        self.assertEqual(jobs.lost({1, 2}, {1, 2}, {2}, set()), (set(), []))

    def test_a_job_that_never_ran_is_a_problem_unless_a_worker_had_taken_it(self):
        self.assertEqual(jobs.lost({1, 2, 3}, {1, 3}, {2}, set()), ({2}, []))
        missing, problems = jobs.lost({1, 2, 3, 4}, {1}, {2}, {2, 4})
        self.assertEqual((missing, problems), ({2, 3, 4}, ["2 acknowledged jobs never ran: [3, 4]; the server holds [4]"]))

    def test_names_of_jobs_are_found_in_any_text(self):
        self.assertEqual(jobs.NAME.findall(b'{"args": ["/a", "job-000012"]} job-1 job-000345'), [b"000012", b"000345"])


if __name__ == "__main__":
    unittest.main()
