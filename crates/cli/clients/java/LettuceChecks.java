import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.KillArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Our own checks of lettuce. */
public final class LettuceChecks {
    public static void main(String[] words) {
        int port = Integer.parseInt(words[0]);
        for (ProtocolVersion protocol : List.of(ProtocolVersion.RESP2, ProtocolVersion.RESP3)) {
            RedisURI uri = RedisURI.builder().withHost("127.0.0.1").withPort(port).withClientName("checks").build();
            RedisClient client = RedisClient.create(uri);
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
            run(protocol + ": ", client, port);
            client.shutdown(0, 1, TimeUnit.SECONDS);
        }
        System.out.println("end");
        System.exit(0);
    }

    private static void run(String title, RedisClient maker, int port) {
        StatefulRedisConnection<String, String> connection = maker.connect();
        RedisCommands<String, String> client = connection.sync();
        Checks checks = new Checks(client::flushall);
        checks.check(title + "PING and ECHO", () -> {
            Checks.same(client.ping(), "PONG");
            Checks.same(client.echo("a"), "a");
        });
        checks.check(title + "SET and GET", () -> {
            Checks.same(client.set("k", "v"), "OK");
            Checks.same(client.get("k"), "v");
            Checks.same(client.get("absent"), null);
        });
        checks.check(title + "SET with options", () -> {
            Checks.same(client.set("k", "1", SetArgs.Builder.nx().ex(100)), "OK");
            Checks.same(client.set("k", "2", SetArgs.Builder.nx()), null);
            Checks.same(client.setGet("k", "2", SetArgs.Builder.keepttl()), "1");
            Checks.yes(client.ttl("k") > 90);
        });
        checks.check(title + "deadlines", () -> {
            client.psetex("k", 20, "v");
            Thread.sleep(60);
            Checks.same(client.get("k"), null);
            client.setex("k", 100, "v");
            Checks.yes(client.pttl("k") > 90_000 && client.persist("k"));
            Checks.same(client.ttl("k"), -1L);
        });
        checks.check(title + "GETEX and GETDEL", () -> {
            client.set("k", "v");
            Checks.same(client.getex("k", GetExArgs.Builder.ex(100)), "v");
            Checks.same(client.getdel("k"), "v");
            Checks.same(client.exists("k"), 0L);
        });
        checks.check(title + "counters", () -> {
            Checks.same(client.incrby("n", 5), 5L);
            Checks.same(client.decr("n"), 4L);
            Checks.same(client.incrbyfloat("n", 0.5), 4.5);
        });
        checks.check(title + "MSET and MGET", () -> {
            client.mset(Map.of("a", "1", "b", "2"));
            List<KeyValue<String, String>> found = client.mget("a", "x", "b");
            Checks.same(found, List.of(KeyValue.just("a", "1"), KeyValue.empty("x"), KeyValue.just("b", "2")));
        });
        checks.check(title + "parts of strings and bits", () -> {
            Checks.same(client.append("k", "hello"), 5L);
            Checks.same(client.getrange("k", -3, -1), "llo");
            client.setbit("b", 9, 1);
            Checks.same(client.bitpos("b", true), 9L);
        });
        checks.check(title + "DEL, UNLINK, RENAME and COPY", () -> {
            client.set("a", "1");
            client.rename("a", "b");
            Checks.yes(client.copy("b", "c"));
            Checks.same(client.unlink("b", "x"), 1L);
            Checks.same(client.del("c"), 1L);
            Checks.fails("no such key", () -> client.rename("x", "y"));
        });
        checks.check(title + "binary values", () -> {
            byte[] value = new byte[256];
            for (int n = 0; n < 256; n++) {
                value[n] = (byte) n;
            }
            try (StatefulRedisConnection<byte[], byte[]> other = maker.connect(ByteArrayCodec.INSTANCE)) {
                other.sync().set(new byte[] {0, -1}, value);
                Checks.yes(Arrays.equals(other.sync().get(new byte[] {0, -1}), value));
            }
        });
        checks.check(title + "the iterator of SCAN", () -> {
            for (int n = 0; n < 500; n++) {
                client.set("s:" + n, "v");
            }
            client.set("other", "v");
            Set<String> keys = new HashSet<>();
            ScanIterator.scan(client, ScanArgs.Builder.limit(33).match("s:*")).forEachRemaining(keys::add);
            Checks.same(keys.size(), 500);
            KeyScanCursor<String> part = client.scan(ScanArgs.Builder.limit(1000));
            Checks.yes(part.isFinished() && part.getKeys().size() == 501);
        });
        checks.check(title + "1,000 asynchronous commands", () -> {
            RedisAsyncCommands<String, String> async = connection.async();
            List<RedisFuture<String>> replies = new ArrayList<>();
            for (int n = 0; n < 1000; n++) {
                replies.add(async.set("p:" + n, "" + n));
            }
            for (RedisFuture<String> reply : replies) {
                Checks.same(reply.get(20, TimeUnit.SECONDS), "OK");
            }
        });
        checks.check(title + "a batch with manual flush", () -> {
            try (StatefulRedisConnection<String, String> other = maker.connect()) {
                other.setAutoFlushCommands(false);
                RedisFuture<String> set = other.async().set("k", "1");
                RedisFuture<Long> number = other.async().incr("k");
                other.flushCommands();
                Checks.same(set.get(20, TimeUnit.SECONDS), "OK");
                Checks.same(number.get(20, TimeUnit.SECONDS), 2L);
            }
        });
        checks.check(title + "reactive commands", () ->
            Checks.same(connection.reactive().set("k", "1").then(connection.reactive().get("k")).block(), "1"));
        checks.check(title + "MULTI and EXEC", () -> {
            client.multi();
            client.set("k", "1");
            client.incr("k");
            TransactionResult result = client.exec();
            Checks.same(List.of(result.get(0), result.get(1)), List.of("OK", 2L));
        });
        checks.check(title + "DISCARD", () -> {
            client.multi();
            client.set("k", "1");
            client.discard();
            Checks.same(client.get("k"), null);
        });
        checks.check(title + "WATCH", () -> {
            try (StatefulRedisConnection<String, String> other = maker.connect()) {
                other.sync().watch("k");
                client.set("k", "1");
                other.sync().multi();
                other.sync().set("k", "2");
                Checks.yes(other.sync().exec().wasDiscarded());
            }
        });
        checks.check(title + "a database in the address", () -> {
            RedisURI third = RedisURI.builder().withHost("127.0.0.1").withPort(port).withDatabase(3).build();
            try (StatefulRedisConnection<String, String> other = maker.connect(third)) {
                other.sync().set("k", "3");
                Checks.same(client.get("k"), null);
                Checks.yes(other.sync().move("k", 0));
            }
            Checks.same(client.get("k"), "3");
        });
        checks.check(title + "errors", () -> {
            client.set("k", "text");
            Checks.fails("not an integer", () -> client.incr("k"));
        });
        checks.check(title + "the name of the connection", () -> {
            Checks.same(client.clientGetname(), "checks");
            Checks.yes(client.clientList().contains("lib-name=Lettuce"));
        });
        checks.check(title + "a wrong password is refused", () -> {
            RedisURI wrong = RedisURI.builder().withHost("127.0.0.1").withPort(port)
                .withAuthentication("nosuch", "x".toCharArray()).build();
            StringBuilder found = new StringBuilder("it connects");
            try {
                maker.connect(wrong).close();
            } catch (Exception error) {
                found.setLength(0);
                for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                    found.append(cause).append("; ");
                }
            }
            if (!found.toString().contains("WRONGPASS")) {
                throw new AssertionError(found);
            }
        });
        checks.check(title + "reconnects after CLIENT KILL", () -> {
            try (StatefulRedisConnection<String, String> other = maker.connect()) {
                long id = other.sync().clientId();
                Checks.same(client.clientKill(KillArgs.Builder.id(id)), 1L);
                Checks.same(other.sync().ping(), "PONG");
                Checks.yes(other.sync().clientId() != id);
            }
        });
        checks.check(title + "eight threads on one connection", () -> {
            Checks.inEightThreads(() -> client.incr("n"));
            Checks.same(client.get("n"), "800");
        });
        checks.check(title + "a value of 8 MiB", () -> {
            client.set("k", "x".repeat(8 << 20));
            Checks.same(client.get("k").length(), 8 << 20);
        });
        checks.check(title + "INFO, CONFIG GET and TIME", () -> {
            Checks.yes(client.info("server").contains("redis_version:7"));
            Checks.yes(client.configGet("maxmemory").containsKey("maxmemory"));
            Checks.same(client.time().size(), 2);
        });
        connection.close();
    }
}
