/* What the benchmark asks of Berkeley DB, as plain functions: the library's own calls are members of structures whose layout only
 * its header knows.
 *
 * Every function returns 0 or an error number of the library, for berkeley_why. Handles may be used by several threads; a
 * scan belongs to one. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <db.h>

/* PLAIN: one thread at a time. CONCURRENT: many readers or one writer, neither log nor transactions. */
enum promise { PLAIN, PROCESS, POWER, CONCURRENT };

struct berkeley {
    DB_ENV *env;
    DB *db;
    int is_transactional;
};

struct scan {
    DBC *cursor;
    DBT key, value;
};

const char *berkeley_why(int error) { return db_strerror(error); }

int berkeley_is_absent(int error) { return error == DB_NOTFOUND; }

int berkeley_is_too_large(int error) { return error == DB_BUFFER_SMALL; }

static DBT bytes(const void *data, size_t size)
{
    DBT dbt;
    memset(&dbt, 0, sizeof dbt);
    dbt.data = (void *)data;
    dbt.size = (u_int32_t)size;
    return dbt;
}

static int close_all(struct berkeley *b)
{
    int first = b->db ? b->db->close(b->db, 0) : 0;
    if (b->env) {
        int second = b->is_transactional ? b->env->txn_checkpoint(b->env, 0, 0, 0) : 0;
        int third = b->env->close(b->env, 0);
        first = first ? first : second ? second : third;
    }
    free(b);
    return first;
}

static int set_up(struct berkeley *b, const char *home, u_int64_t cache_bytes, enum promise promise)
{
    const u_int32_t gigabyte = 1u << 30, locks = 200000;
    u_int32_t flags = DB_CREATE | DB_PRIVATE | DB_THREAD | DB_INIT_MPOOL;
    int error = db_env_create(&b->env, 0);
    if (error)
        return error;
    DB_ENV *env = b->env;
    error = env->set_cachesize(env, (u_int32_t)(cache_bytes / gigabyte), (u_int32_t)(cache_bytes % gigabyte), 1);
    if (b->is_transactional) {
        flags |= DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_RECOVER;
        error = error ? error : env->set_lk_max_locks(env, locks);
        error = error ? error : env->set_lk_max_objects(env, locks);
        error = error ? error : env->set_lk_detect(env, DB_LOCK_DEFAULT);
        if (promise == PROCESS)
            error = error ? error : env->set_flags(env, DB_TXN_WRITE_NOSYNC, 1);
    }
    if (promise == CONCURRENT)
        flags |= DB_INIT_CDB;
    error = error ? error : env->open(env, home, flags, 0600);
    error = error ? error : db_create(&b->db, env, 0);
    if (error)
        return error;
    return b->db->open(b->db, NULL, "pairs.db", NULL, DB_BTREE,
                       DB_CREATE | DB_THREAD | (b->is_transactional ? DB_AUTO_COMMIT : 0), 0600);
}

int berkeley_open(const char *home, u_int64_t cache_bytes, int promise, struct berkeley **opened)
{
    struct berkeley *b = calloc(1, sizeof *b);
    if (!b)
        return ENOMEM;
    b->is_transactional = promise == PROCESS || promise == POWER;
    int error = set_up(b, home, cache_bytes, (enum promise)promise);
    if (error)
        close_all(b);
    else
        *opened = b;
    return error;
}

int berkeley_close(struct berkeley *b) { return close_all(b); }

int berkeley_put(struct berkeley *b, const void *key, size_t key_size, const void *value, size_t value_size)
{
    DBT k = bytes(key, key_size), v = bytes(value, value_size);
    int error;
    do
        error = b->db->put(b->db, NULL, &k, &v, 0);
    while (error == DB_LOCK_DEADLOCK);
    return error;
}

/* `count` pairs, each a key and a value one after the other in the two arrays. */
int berkeley_batch(struct berkeley *b, size_t count, const void *const *data, const size_t *sizes)
{
    int error;
    do {
        DB_TXN *transaction = NULL;
        error = b->is_transactional ? b->env->txn_begin(b->env, NULL, &transaction, 0) : 0;
        for (size_t i = 0; !error && i < count; i++) {
            DBT k = bytes(data[2 * i], sizes[2 * i]), v = bytes(data[2 * i + 1], sizes[2 * i + 1]);
            error = b->db->put(b->db, transaction, &k, &v, 0);
        }
        if (transaction) {
            if (error)
                transaction->abort(transaction);
            else
                error = transaction->commit(transaction, 0);
        }
    } while (error == DB_LOCK_DEADLOCK);
    return error;
}

/* `size` is how large the buffer is, then how large the value is. */
int berkeley_get(struct berkeley *b, const void *key, size_t key_size, void *buffer, size_t *size)
{
    DBT k = bytes(key, key_size), v = bytes(buffer, 0);
    int error;
    v.flags = DB_DBT_USERMEM;
    v.ulen = (u_int32_t)*size;
    do
        error = b->db->get(b->db, NULL, &k, &v, 0);
    while (error == DB_LOCK_DEADLOCK);
    *size = v.size;
    return error;
}

int berkeley_delete(struct berkeley *b, const void *key, size_t key_size)
{
    DBT k = bytes(key, key_size);
    int error;
    do
        error = b->db->del(b->db, NULL, &k, 0);
    while (error == DB_LOCK_DEADLOCK);
    return error;
}

int berkeley_scan(struct berkeley *b, struct scan **opened)
{
    struct scan *s = calloc(1, sizeof *s);
    if (!s)
        return ENOMEM;
    s->key.flags = s->value.flags = DB_DBT_REALLOC;
    int error = b->db->cursor(b->db, NULL, &s->cursor, b->is_transactional ? DB_READ_COMMITTED : 0);
    if (error)
        free(s);
    else
        *opened = s;
    return error;
}

/* The next pair, or the first from a key on. What is found stays until the next call. */
int berkeley_next(struct scan *s, const void *from, size_t from_size, const void **key, size_t *key_size,
                  const void **value, size_t *value_size)
{
    u_int32_t where = DB_NEXT;
    if (from) {
        void *copy = realloc(s->key.data, from_size ? from_size : 1);
        if (!copy)
            return ENOMEM;
        memcpy(copy, from, from_size);
        s->key.data = copy;
        s->key.size = (u_int32_t)from_size;
        where = DB_SET_RANGE;
    }
    int error = s->cursor->get(s->cursor, &s->key, &s->value, where);
    *key = s->key.data;
    *key_size = s->key.size;
    *value = s->value.data;
    *value_size = s->value.size;
    return error;
}

int berkeley_end(struct scan *s)
{
    int error = s->cursor->close(s->cursor);
    free(s->key.data);
    free(s->value.data);
    free(s);
    return error;
}
