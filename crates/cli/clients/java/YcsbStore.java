import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Response;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * The database of YCSB on jedis. A record is a hash. The sorted set {@code index} has the keys of all records with equal scores, so that
 * a scan reads the keys in their order. A record and its key in the index change in one transaction.
 */
public class YcsbStore extends DB {
  private static final String INDEX = "index";

  private Jedis jedis;

  @Override
  public void init() throws DBException {
    Properties properties = getProperties();
    jedis = new Jedis("127.0.0.1", Integer.parseInt(properties.getProperty("redis.port")), 60_000);
    jedis.connect();
  }

  @Override
  public void cleanup() {
    jedis.close();
  }

  /** Copies the fields of a record to {@code result}. A record without fields does not exist. */
  private static Status give(Map<String, String> record, Map<String, ByteIterator> result) {
    if (record.isEmpty()) {
      return Status.NOT_FOUND;
    }
    StringByteIterator.putAllAsByteIterators(result, record);
    return Status.OK;
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    if (fields == null) {
      return give(jedis.hgetAll(key), result);
    }
    String[] names = fields.toArray(new String[0]);
    List<String> values = jedis.hmget(key, names);
    Map<String, String> record = new HashMap<>();
    for (int at = 0; at < names.length; at++) {
      if (values.get(at) != null) {
        record.put(names[at], values.get(at));
      }
    }
    return give(record, result);
  }

  @Override
  public Status scan(String table, String from, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    List<String> keys = jedis.zrangeByLex(INDEX, "[" + from, "+", 0, count);
    List<Response<Map<String, String>>> records = new ArrayList<>();
    try (var pipeline = jedis.pipelined()) {
      keys.forEach(key -> records.add(pipeline.hgetAll(key)));
      pipeline.sync();
    }
    for (Response<Map<String, String>> record : records) {
      HashMap<String, ByteIterator> values = new HashMap<>();
      if (give(record.get(), values) != Status.OK) {
        return Status.NOT_FOUND;
      }
      result.add(values);
    }
    return keys.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    // No field is new: the record has all of them.
    return jedis.hset(key, StringByteIterator.getStringMap(values)) == 0 ? Status.OK : Status.ERROR;
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try (AbstractTransaction transaction = jedis.multi()) {
      Response<Long> fields = transaction.hset(key, StringByteIterator.getStringMap(values));
      transaction.zadd(INDEX, 0, key);
      transaction.exec();
      return fields.get() > 0 ? Status.OK : Status.ERROR;
    }
  }

  @Override
  public Status delete(String table, String key) {
    try (AbstractTransaction transaction = jedis.multi()) {
      Response<Long> removed = transaction.del(key);
      transaction.zrem(INDEX, key);
      transaction.exec();
      return removed.get() == 1 ? Status.OK : Status.NOT_FOUND;
    }
  }
}
