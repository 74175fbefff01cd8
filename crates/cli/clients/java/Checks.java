import java.util.Objects;

/** Runs checks and prints `ok NAME` or `not ok NAME: TEXT` for each. */
final class Checks {
    interface Body {
        void run() throws Exception;
    }

    private final Body before;

    Checks(Body before) {
        this.before = before;
    }

    void check(String name, Body body) {
        try {
            before.run();
            body.run();
            System.out.println("ok " + name);
        } catch (Throwable error) {
            System.out.println("not ok " + name + ": " + String.valueOf(error).replace('\n', ' '));
        }
        System.out.flush();
    }

    static void same(Object left, Object right) {
        if (!Objects.equals(left, right)) {
            throw new AssertionError(left + " is not " + right);
        }
    }

    static void yes(boolean holds) {
        same(holds, true);
    }

    /** Runs the body 100 times in each of eight threads, and waits for their end. */
    static void inEightThreads(Runnable body) throws InterruptedException {
        Thread[] threads = new Thread[8];
        for (int n = 0; n < threads.length; n++) {
            threads[n] = new Thread(() -> {
                for (int turn = 0; turn < 100; turn++) {
                    body.run();
                }
            });
            threads[n].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** The body must fail with an error that contains the text. */
    static void fails(String text, Body body) throws Exception {
        String found = "no error";
        try {
            body.run();
        } catch (Exception error) {
            found = error + " " + error.getCause();
        }
        if (!found.contains(text)) {
            throw new AssertionError(found + " does not contain " + text);
        }
    }
}
