import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Our own checks of jedis. */
public final class JedisChecks {
    public static void main(String[] words) {
        int port = Integer.parseInt(words[0]);
        for (RedisProtocol protocol : RedisProtocol.values()) {
            run(protocol + ": ", new HostAndPort("127.0.0.1", port), protocol);
        }
        System.out.println("end");
    }

    private static void run(String title, HostAndPort address, RedisProtocol protocol) {
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().protocol(protocol).clientName("checks").build();
        Jedis client = new Jedis(address, config);
        Checks checks = new Checks(client::flushAll);
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
            Checks.same(client.set("k", "1", new SetParams().nx().ex(100)), "OK");
            Checks.same(client.set("k", "2", new SetParams().nx()), null);
            Checks.same(client.setGet("k", "2", new SetParams().keepTtl()), "1");
            Checks.yes(client.ttl("k") > 90);
        });
        checks.check(title + "deadlines", () -> {
            client.psetex("k", 20, "v");
            Thread.sleep(60);
            Checks.same(client.get("k"), null);
            client.setex("k", 100, "v");
            Checks.yes(client.pttl("k") > 90_000 && client.expireTime("k") > 1_600_000_000L);
            Checks.same(client.persist("k"), 1L);
            Checks.same(client.ttl("k"), -1L);
        });
        checks.check(title + "GETEX and GETDEL", () -> {
            client.set("k", "v");
            Checks.same(client.getEx("k", new GetExParams().ex(100)), "v");
            Checks.yes(client.ttl("k") > 90);
            Checks.same(client.getDel("k"), "v");
            Checks.yes(!client.exists("k"));
        });
        checks.check(title + "counters", () -> {
            Checks.same(client.incrBy("n", 5), 5L);
            Checks.same(client.decr("n"), 4L);
            Checks.same(client.incrByFloat("n", 0.5), 4.5);
        });
        checks.check(title + "MSET, MGET and MSETNX", () -> {
            client.mset("a", "1", "b", "2");
            Checks.same(client.mget("a", "x", "b"), Arrays.asList("1", null, "2"));
            Checks.same(client.msetnx("a", "3", "c", "4"), 0L);
        });
        checks.check(title + "parts of strings and bits", () -> {
            Checks.same(client.append("k", "hello"), 5L);
            Checks.same(client.setrange("k", 1, "a"), 5L);
            Checks.same(client.getrange("k", 0, 2), "hal");
            Checks.yes(!client.setbit("b", 9, true) && client.getbit("b", 9));
            Checks.same(client.bitcount("b"), 1L);
        });
        checks.check(title + "DEL, UNLINK, EXISTS and TYPE", () -> {
            client.mset("a", "1", "b", "2", "c", "3");
            Checks.same(client.exists("a", "b", "x"), 2L);
            Checks.same(client.type("a"), "string");
            Checks.same(client.del("a", "b"), 2L);
            Checks.same(client.unlink("c"), 1L);
        });
        checks.check(title + "RENAME and COPY", () -> {
            client.set("a", "1");
            client.rename("a", "b");
            Checks.yes(client.copy("b", "c", false));
            Checks.fails("no such key", () -> client.rename("x", "y"));
        });
        checks.check(title + "binary keys and values", () -> {
            byte[] value = new byte[256];
            for (int n = 0; n < 256; n++) {
                value[n] = (byte) n;
            }
            client.set(new byte[] {0, 13, 10, -1}, value);
            Checks.yes(Arrays.equals(client.get(new byte[] {0, 13, 10, -1}), value));
        });
        checks.check(title + "SCAN", () -> {
            for (int n = 0; n < 500; n++) {
                client.set("s:" + n, "v");
            }
            client.set("other", "v");
            Set<String> keys = new HashSet<>();
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> part = client.scan(cursor, new ScanParams().match("s:*").count(33));
                keys.addAll(part.getResult());
                cursor = part.getCursor();
            } while (!cursor.equals("0"));
            Checks.same(keys.size(), 500);
            Checks.same(client.keys("s:49?").size(), 10);
            Checks.same(client.dbSize(), 501L);
        });
        checks.check(title + "a pipeline of 1,000 commands", () -> {
            Pipeline pipeline = client.pipelined();
            List<Response<String>> replies = new ArrayList<>();
            for (int n = 0; n < 1000; n++) {
                replies.add(pipeline.set("p:" + n, "" + n));
            }
            pipeline.sync();
            Checks.yes(replies.stream().allMatch(reply -> reply.get().equals("OK")));
        });
        checks.check(title + "MULTI and EXEC", () -> {
            Transaction transaction = client.multi();
            transaction.set("k", "1");
            Response<Long> number = transaction.incr("k");
            Checks.same(transaction.exec(), List.of("OK", 2L));
            Checks.same(number.get(), 2L);
        });
        checks.check(title + "DISCARD", () -> {
            Transaction transaction = client.multi();
            transaction.set("k", "1");
            transaction.discard();
            Checks.same(client.get("k"), null);
        });
        checks.check(title + "WATCH", () -> {
            try (Jedis other = new Jedis(address, config)) {
                other.watch("k");
                client.set("k", "1");
                Transaction transaction = other.multi();
                transaction.set("k", "2");
                Checks.same(transaction.exec(), null);
            }
            Checks.same(client.get("k"), "1");
        });
        checks.check(title + "SELECT and MOVE", () -> {
            try (Jedis other = new Jedis(address, config)) {
                other.select(3);
                other.set("k", "3");
                Checks.same(client.get("k"), null);
                Checks.same(other.move("k", 0), 1L);
            }
            Checks.same(client.get("k"), "3");
        });
        checks.check(title + "errors", () -> {
            client.set("k", "text");
            Checks.fails("not an integer", () -> client.incr("k"));
            Checks.fails("unknown command", () -> client.sendCommand(() -> "NOSUCH".getBytes()));
        });
        checks.check(title + "the name of the connection", () -> {
            Checks.same(client.clientGetname(), "checks");
            Checks.yes(client.clientList().contains("name=checks"));
        });
        checks.check(title + "a wrong password is refused", () -> {
            DefaultJedisClientConfig wrong =
                DefaultJedisClientConfig.builder().protocol(protocol).user("nosuch").password("x").build();
            Checks.fails("WRONGPASS", () -> new Jedis(address, wrong).ping());
        });
        checks.check(title + "users", () -> {
            client.aclSetUser("bob", "on", ">secret", "+get", "~a*");
            Checks.same(client.aclGetUser("bob").getFlags().contains("on"), true);
            DefaultJedisClientConfig bob =
                DefaultJedisClientConfig.builder().protocol(protocol).user("bob").password("secret").build();
            try (Jedis other = new Jedis(address, bob)) {
                Checks.same(other.get("a"), null);
                Checks.fails("NOPERM", () -> other.set("a", "1"));
            }
            Checks.same(client.aclDelUser("bob"), 1L);
        });
        checks.check(title + "a pool with eight threads", () -> {
            try (JedisPool pool = new JedisPool("127.0.0.1", address.getPort())) {
                Checks.inEightThreads(() -> {
                    try (Jedis one = pool.getResource()) {
                        one.incr("n");
                    }
                });
            }
            Checks.same(client.get("n"), "800");
        });
        checks.check(title + "JedisPooled: iterator and transaction", () -> {
            try (JedisPooled pooled = new JedisPooled(address, config)) {
                pooled.mset("a", "1", "b", "2");
                Checks.same(pooled.scanIteration(10, "*").nextBatch().getResult().size(), 2);
                try (AbstractTransaction transaction = pooled.multi()) {
                    transaction.incr("a");
                    Checks.same(transaction.exec(), List.of(2L));
                }
            }
        });
        checks.check(title + "a pool replaces a killed connection", () -> {
            try (JedisPool pool = new JedisPool("127.0.0.1", address.getPort())) {
                long id;
                try (Jedis one = pool.getResource()) {
                    id = one.clientId();
                    client.clientKill(new redis.clients.jedis.params.ClientKillParams().id(Long.toString(id)));
                    Checks.fails("JedisConnectionException", one::ping);
                }
                try (Jedis one = pool.getResource()) {
                    Checks.same(one.ping(), "PONG");
                    Checks.yes(one.clientId() != id);
                }
            }
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
        client.close();
    }
}
