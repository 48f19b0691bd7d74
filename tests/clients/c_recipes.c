/*
 * What the C client can do, one thing after the other: `c_recipes CONNECT`.
 *
 * Prints a line `OK <recipe>` for each that works, and ends with an error at the first that does
 * not. The library brings no recipes with it, so the lock and the queue are the ones of
 * ZooKeeper's own documentation.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define LIMIT_MS 20000
#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);        \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

static const char *address;

/* The events that a handle got, in order. */
struct events {
    pthread_mutex_t lock;
    int connected;
    int count;
    int types[64];
    char paths[64][128];
};

static struct events *new_events(void) {
    struct events *events = calloc(1, sizeof *events);
    pthread_mutex_init(&events->lock, NULL);
    return events;
}

static void watcher(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct events *events = context;
    (void)handle;
    pthread_mutex_lock(&events->lock);
    if (type == ZOO_SESSION_EVENT) {
        events->connected = state == ZOO_CONNECTED_STATE;
    } else if (events->count < 64) {
        events->types[events->count] = type;
        snprintf(events->paths[events->count++], 128, "%s", path);
    }
    pthread_mutex_unlock(&events->lock);
}

static int has_event(struct events *events, int type, const char *path) {
    int found = 0;
    pthread_mutex_lock(&events->lock);
    for (int i = 0; i < events->count; i++) {
        found |= events->types[i] == type && strcmp(events->paths[i], path) == 0;
    }
    pthread_mutex_unlock(&events->lock);
    return found;
}

#define WAIT_UNTIL(what)                                          \
    do {                                                          \
        int waited = 0;                                           \
        while (!(what) && waited++ < LIMIT_MS / 10) {             \
            usleep(10000);                                        \
        }                                                         \
        CHECK(what);                                              \
    } while (0)

static zhandle_t *open_handle(struct events *events, const clientid_t *id) {
    zhandle_t *handle = zookeeper_init(address, watcher, 10000, id, events, 0);
    CHECK(handle != NULL);
    WAIT_UNTIL(zoo_state(handle) == ZOO_CONNECTED_STATE);
    return handle;
}

static void create(zhandle_t *handle, const char *path, int flags, char *made, int length) {
    CHECK(zoo_create(handle, path, "data", 4, &ZOO_OPEN_ACL_UNSAFE, flags, made, length) == ZOK);
}

static void nodes(zhandle_t *a, zhandle_t *b) {
    char path[128], data[16];
    int length = sizeof data;
    struct Stat stat;
    create(a, "/nodes", 0, path, sizeof path);
    CHECK(strcmp(path, "/nodes") == 0);
    CHECK(zoo_create(b, "/nodes", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0) == ZNODEEXISTS);
    CHECK(zoo_get(b, "/nodes", 0, data, &length, &stat) == ZOK);
    CHECK(length == 4 && memcmp(data, "data", 4) == 0 && stat.version == 0);
    CHECK(zoo_set2(b, "/nodes", "more", 4, 0, &stat) == ZOK && stat.version == 1);
    CHECK(zoo_set(a, "/nodes", "x", 1, 0) == ZBADVERSION);
    CHECK(zoo_exists(a, "/nodes", 0, &stat) == ZOK && stat.dataLength == 4);
    CHECK(zoo_delete(a, "/nodes", 7) == ZBADVERSION);
    CHECK(zoo_delete(a, "/nodes", 1) == ZOK);
    CHECK(zoo_exists(b, "/nodes", 0, &stat) == ZNONODE);
}

static void sequences(zhandle_t *a, zhandle_t *b) {
    char first[128], second[128];
    struct Stat stat;
    create(a, "/sequences", 0, NULL, 0);
    create(a, "/sequences/n-", ZOO_SEQUENCE, first, sizeof first);
    CHECK(zoo_create2(b, "/sequences/n-", "", 0, &ZOO_OPEN_ACL_UNSAFE,
                      ZOO_SEQUENCE | ZOO_EPHEMERAL, second, sizeof second, &stat) == ZOK);
    CHECK(strcmp(first, "/sequences/n-0000000000") == 0);
    CHECK(strcmp(second, "/sequences/n-0000000001") == 0);
    CHECK(stat.ephemeralOwner == zoo_client_id(b)->client_id);
}

static void containers(zhandle_t *a, zhandle_t *b) {
    struct Stat stat;
    create(a, "/container", ZOO_CONTAINER, NULL, 0);
    create(b, "/container/child", 0, NULL, 0);
    CHECK(zoo_exists(a, "/container", 0, &stat) == ZOK && stat.numChildren == 1);
    CHECK(zoo_delete(a, "/container", -1) == ZNOTEMPTY);
}

static void children(zhandle_t *a, zhandle_t *b) {
    struct String_vector names;
    struct Stat stat;
    create(a, "/children", 0, NULL, 0);
    create(b, "/children/x", 0, NULL, 0);
    create(b, "/children/y", ZOO_EPHEMERAL, NULL, 0);
    CHECK(zoo_get_children2(a, "/children", 0, &names, &stat) == ZOK);
    CHECK(names.count == 2 && stat.numChildren == 2 && stat.cversion == 2);
    deallocate_String_vector(&names);
    CHECK(zoo_create(a, "/children/y/z", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0)
          == ZNOCHILDRENFOREPHEMERALS);
}

static void watches(zhandle_t *a, zhandle_t *b) {
    struct events *seen = new_events();
    struct String_vector names;
    struct Stat stat;
    char data[16];
    int length = sizeof data;
    CHECK(zoo_wexists(a, "/watches", watcher, seen, &stat) == ZNONODE);
    create(b, "/watches", 0, NULL, 0);
    WAIT_UNTIL(has_event(seen, ZOO_CREATED_EVENT, "/watches"));
    CHECK(zoo_wget(a, "/watches", watcher, seen, data, &length, &stat) == ZOK);
    CHECK(zoo_wget_children(a, "/watches", watcher, seen, &names) == ZOK);
    deallocate_String_vector(&names);
    CHECK(zoo_set(b, "/watches", "x", 1, -1) == ZOK);
    WAIT_UNTIL(has_event(seen, ZOO_CHANGED_EVENT, "/watches"));
    create(b, "/watches/child", 0, NULL, 0);
    WAIT_UNTIL(has_event(seen, ZOO_CHILD_EVENT, "/watches"));
    length = sizeof data;
    CHECK(zoo_wget(a, "/watches/child", watcher, seen, data, &length, &stat) == ZOK);
    CHECK(zoo_delete(b, "/watches/child", -1) == ZOK);
    WAIT_UNTIL(has_event(seen, ZOO_DELETED_EVENT, "/watches/child"));
}

static void removed_watches(zhandle_t *a, zhandle_t *b) {
    struct events *seen = new_events();
    struct Stat stat;
    create(a, "/removed", 0, NULL, 0);
    CHECK(zoo_wexists(a, "/removed", watcher, seen, &stat) == ZOK);
    CHECK(zoo_remove_watches(a, "/removed", ZWATCHTYPE_DATA, watcher, seen, 0) == ZOK);
    CHECK(zoo_set(b, "/removed", "x", 1, -1) == ZOK);
    CHECK(zoo_remove_watches(a, "/removed", ZWATCHTYPE_DATA, watcher, seen, 0) == ZNOWATCHER);
    CHECK(!has_event(seen, ZOO_CHANGED_EVENT, "/removed"));
}

static void transactions(zhandle_t *a, zhandle_t *b) {
    char path[128];
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    struct Stat stat;
    zoo_create_op_init(&ops[0], "/multi", "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, path, sizeof path);
    zoo_set_op_init(&ops[1], "/multi", "2", 1, 0, &stat);
    zoo_check_op_init(&ops[2], "/multi", 1);
    zoo_create_op_init(&ops[3], "/multi/c", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    CHECK(zoo_multi(a, 4, ops, results) == ZOK);
    CHECK(strcmp(path, "/multi") == 0 && stat.version == 1);
    zoo_set_op_init(&ops[0], "/multi", "3", 1, -1, NULL);
    zoo_delete_op_init(&ops[1], "/multi", -1);
    zoo_check_op_init(&ops[2], "/multi", 0);
    CHECK(zoo_multi(b, 3, ops, results) == ZNOTEMPTY);
    CHECK(results[0].err == ZOK && results[1].err == ZNOTEMPTY);
    CHECK(results[2].err == ZRUNTIMEINCONSISTENCY);
    CHECK(zoo_exists(a, "/multi", 0, &stat) == ZOK && stat.version == 1);
}

static void authenticated(int result, const void *done) {
    *(volatile int *)done = result == ZOK ? 1 : -1;
}

static void access_control(zhandle_t *a, zhandle_t *b) {
    struct ACL_vector acl;
    struct Stat stat;
    char data[16];
    int length = sizeof data;
    static volatile int done;
    CHECK(zoo_add_auth(a, "digest", "user:secret", 11, authenticated, (void *)&done) == ZOK);
    WAIT_UNTIL(done == 1);
    CHECK(zoo_create(a, "/private", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0) == ZOK);
    CHECK(zoo_get(b, "/private", 0, data, &length, &stat) == ZNOAUTH);
    CHECK(zoo_get_acl(a, "/private", &acl, &stat) == ZOK && acl.count == 1);
    CHECK(strcmp(acl.data[0].id.scheme, "digest") == 0);
    deallocate_ACL_vector(&acl);
    CHECK(zoo_set_acl(a, "/private", 0, &ZOO_OPEN_ACL_UNSAFE) == ZOK);
    length = sizeof data;
    CHECK(zoo_get(b, "/private", 0, data, &length, &stat) == ZOK && stat.aversion == 1);
    CHECK(zoo_create(b, "/nobody", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0) == ZINVALIDACL);
}

/* Whether `mine` is the smallest; else the name that comes right before it. */
static int is_first(zhandle_t *handle, const char *mine, char *before) {
    struct String_vector names;
    CHECK(zoo_get_children(handle, "/lock", 0, &names) == ZOK);
    before[0] = 0;
    for (int i = 0; i < names.count; i++) {
        if (strcmp(names.data[i], mine) < 0 && strcmp(names.data[i], before) > 0) {
            strcpy(before, names.data[i]);
        }
    }
    deallocate_String_vector(&names);
    return before[0] == 0;
}

static void acquire(zhandle_t *handle, char *mine) {
    char path[128], before[128], watched[256];
    struct Stat stat;
    create(handle, "/lock/n-", ZOO_SEQUENCE | ZOO_EPHEMERAL, path, sizeof path);
    strcpy(mine, path + strlen("/lock/"));
    while (!is_first(handle, mine, before)) {
        struct events *seen = new_events();
        snprintf(watched, sizeof watched, "/lock/%s", before);
        if (zoo_wexists(handle, watched, watcher, seen, &stat) == ZOK) {
            WAIT_UNTIL(has_event(seen, ZOO_DELETED_EVENT, watched));
        }
    }
}

static void release(zhandle_t *handle, const char *mine) {
    char path[256];
    snprintf(path, sizeof path, "/lock/%s", mine);
    CHECK(zoo_delete(handle, path, -1) == ZOK);
}

static int holders, rounds;

static void *contend(void *handle) {
    char mine[128];
    for (int i = 0; i < 20; i++) {
        acquire(handle, mine);
        CHECK(__atomic_add_fetch(&holders, 1, __ATOMIC_SEQ_CST) == 1);
        rounds++;
        CHECK(__atomic_sub_fetch(&holders, 1, __ATOMIC_SEQ_CST) == 0);
        release(handle, mine);
    }
    return NULL;
}

static void lock(zhandle_t *a, zhandle_t *b) {
    pthread_t one, other;
    create(a, "/lock", 0, NULL, 0);
    CHECK(pthread_create(&one, NULL, contend, a) == 0);
    CHECK(pthread_create(&other, NULL, contend, b) == 0);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    CHECK(rounds == 40);
}

static void queue(zhandle_t *a, zhandle_t *b) {
    struct String_vector names;
    char path[128];
    create(a, "/queue", 0, NULL, 0);
    for (int i = 0; i < 5; i++) {
        create(i % 2 ? a : b, "/queue/qn-", ZOO_SEQUENCE, NULL, 0);
    }
    for (int left = 5; left > 0; left--) {
        const char *first = "z";
        CHECK(zoo_get_children(b, "/queue", 0, &names) == ZOK && names.count == left);
        for (int i = 0; i < names.count; i++) {
            first = strcmp(names.data[i], first) < 0 ? names.data[i] : first;
        }
        snprintf(path, sizeof path, "/queue/%s", first);
        CHECK(zoo_delete(b, path, -1) == ZOK);
        deallocate_String_vector(&names);
    }
}

/* A second handle takes the session over; the watch of the first one is gone with it. */
static void session(zhandle_t *a, zhandle_t *b) {
    struct Stat stat;
    struct events *seen = new_events();
    zhandle_t *first = open_handle(new_events(), NULL);
    clientid_t id = *zoo_client_id(first);
    create(first, "/session", ZOO_EPHEMERAL, NULL, 0);
    CHECK(zoo_wexists(b, "/session", watcher, seen, &stat) == ZOK);
    CHECK(stat.ephemeralOwner == id.client_id);
    int closed, takeovers = 0;
    do {
        zhandle_t *second = open_handle(new_events(), &id);
        CHECK(zoo_client_id(second)->client_id == id.client_id);
        CHECK(zoo_exists(a, "/session", 0, &stat) == ZOK);
        closed = zookeeper_close(second);
        /* The first handle reconnects by itself, and may have taken the session back before the
           second one could end it: then once more. */
    } while (zoo_exists(a, "/session", 0, &stat) == ZOK && ++takeovers < 10);
    CHECK(closed == ZOK);
    WAIT_UNTIL(has_event(seen, ZOO_DELETED_EVENT, "/session"));
    zookeeper_close(first);
}

static void synced(int result, const char *path, const void *done) {
    *(volatile int *)done = result == ZOK && strcmp(path, "/") == 0 ? 1 : -1;
}

static void sync_with_leader(zhandle_t *a, zhandle_t *b) {
    static volatile int done;
    (void)b;
    CHECK(zoo_async(a, "/", synced, (void *)&done) == ZOK);
    WAIT_UNTIL(done == 1);
}

#define RECIPE(name) { #name, name }

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(zhandle_t *, zhandle_t *);
    } recipes[] = {
        RECIPE(nodes),        RECIPE(sequences),      RECIPE(containers),
        RECIPE(children),     RECIPE(watches),        RECIPE(removed_watches),
        RECIPE(transactions), RECIPE(access_control), RECIPE(lock),
        RECIPE(queue),        RECIPE(session),        RECIPE(sync_with_leader),
    };
    CHECK(argc == 2);
    address = argv[1];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *a = open_handle(new_events(), NULL), *b = open_handle(new_events(), NULL);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        recipes[i].run(a, b);
        printf("OK %s\n", recipes[i].name);
        fflush(stdout);
    }
    CHECK(zookeeper_close(a) == ZOK && zookeeper_close(b) == ZOK);
    return 0;
}
