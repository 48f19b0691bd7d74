import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher.Event.EventType;

/**
 * Every recipe of Apache Curator, one after the other: {@code CuratorRecipes CONNECT}.
 *
 * <p>Prints a line {@code OK <recipe>} for each that does what Curator's documentation says, else
 * {@code FAILED <recipe>} with the reason; the exit code tells whether all are fine.
 */
public final class CuratorRecipes {
    private static final long LIMIT = 20;
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(body -> {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    });

    private final CuratorFramework a;
    private final CuratorFramework b;
    private boolean failed;

    private CuratorRecipes(CuratorFramework a, CuratorFramework b) {
        this.a = a;
        this.b = b;
    }

    private interface Recipe {
        void run() throws Exception;
    }

    private interface Question {
        boolean answer() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        try (CuratorFramework a = connect(args[0]); CuratorFramework b = connect(args[0])) {
            CuratorRecipes recipes = new CuratorRecipes(a, b);
            recipes.all();
            if (recipes.failed) {
                System.exit(1);
            }
        }
        System.exit(0);
    }

    private static CuratorFramework connect(String address) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, 10000, 10000,
                new RetryNTimes(5, 100));
        client.start();
        check(client.blockUntilConnected((int) LIMIT, TimeUnit.SECONDS), "connected");
        return client;
    }

    private void all() {
        recipe("mutex", this::mutex);
        recipe("semaphore mutex", this::semaphoreMutex);
        recipe("read-write lock", this::readWriteLock);
        recipe("semaphore", this::semaphore);
        recipe("multi lock", this::multiLock);
        recipe("leader latch", this::leaderLatch);
        recipe("leader selector", this::leaderSelector);
        recipe("barrier", this::barrier);
        recipe("double barrier", this::doubleBarrier);
        recipe("shared count", this::sharedCount);
        recipe("shared value", this::sharedValue);
        recipe("atomic long", this::atomicLong);
        recipe("persistent node", this::persistentNode);
        recipe("group member", this::groupMember);
        recipe("node cache", this::nodeCache);
        recipe("path children cache", this::pathChildrenCache);
        recipe("tree cache", this::treeCache);
        recipe("curator cache", this::curatorCache);
        recipe("persistent watcher", this::persistentWatcher);
        recipe("simple queue", this::simpleQueue);
        recipe("queue", this::queue);
        recipe("id queue", this::idQueue);
        recipe("priority queue", this::priorityQueue);
        recipe("delay queue", this::delayQueue);
        recipe("transaction", this::transaction);
        recipe("containers and protected creates", this::creates);
    }

    private void recipe(String name, Recipe recipe) {
        try {
            recipe.run();
            System.out.println("OK " + name);
        } catch (Exception | AssertionError error) {
            failed = true;
            System.out.println("FAILED " + name);
            error.printStackTrace();
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not so: " + what);
        }
    }

    private static void waitUntil(String what, Question holds) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT);
        while (!holds.answer()) {
            check(System.nanoTime() < deadline, what);
            Thread.sleep(10);
        }
    }

    /** Whether the second holder waits for the first. */
    private static void contended(InterProcessLock one, InterProcessLock other) throws Exception {
        check(one.acquire(LIMIT, TimeUnit.SECONDS), "acquired");
        check(!onThread(() -> other.acquire(100, TimeUnit.MILLISECONDS)), "the other waits");
        Future<Boolean> waiting = THREADS.submit(() -> {
            boolean acquired = other.acquire(LIMIT, TimeUnit.SECONDS);
            if (acquired) {
                other.release();
            }
            return acquired;
        });
        Thread.sleep(50);
        check(!waiting.isDone(), "it still waits");
        one.release();
        check(waiting.get(LIMIT, TimeUnit.SECONDS), "its turn came");
    }

    private static boolean onThread(java.util.concurrent.Callable<Boolean> body) throws Exception {
        return THREADS.submit(body).get(LIMIT, TimeUnit.SECONDS);
    }

    private void mutex() throws Exception {
        InterProcessMutex one = new InterProcessMutex(a, "/mutex");
        contended(one, new InterProcessMutex(b, "/mutex"));
        one.acquire();
        one.acquire();
        check(one.getParticipantNodes().size() == 1, "entered twice by one node");
        one.release();
        check(one.isAcquiredInThisProcess(), "still held");
        one.release();
        check(a.getChildren().forPath("/mutex").isEmpty(), "nothing left");
    }

    private void semaphoreMutex() throws Exception {
        contended(new InterProcessSemaphoreMutex(a, "/semaphore-mutex"),
                new InterProcessSemaphoreMutex(b, "/semaphore-mutex"));
    }

    private void readWriteLock() throws Exception {
        InterProcessReadWriteLock one = new InterProcessReadWriteLock(a, "/rw");
        InterProcessReadWriteLock other = new InterProcessReadWriteLock(b, "/rw");
        one.readLock().acquire();
        check(onThread(() -> {
            boolean shared = other.readLock().acquire(LIMIT, TimeUnit.SECONDS);
            other.readLock().release();
            return shared;
        }), "readers share");
        check(!onThread(() -> other.writeLock().acquire(100, TimeUnit.MILLISECONDS)), "no writer");
        one.readLock().release();
        contended(one.writeLock(), other.readLock());
        contended(other.writeLock(), one.writeLock());
        one.writeLock().acquire();
        one.readLock().acquire();
        one.writeLock().release();
        check(!onThread(() -> other.writeLock().acquire(100, TimeUnit.MILLISECONDS)), "downgraded");
        one.readLock().release();
    }

    private void semaphore() throws Exception {
        InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(a, "/semaphore", 3);
        InterProcessSemaphoreV2 other = new InterProcessSemaphoreV2(b, "/semaphore", 3);
        Collection<Lease> two = one.acquire(2);
        Lease third = other.acquire(LIMIT, TimeUnit.SECONDS);
        check(third != null, "the third lease");
        check(other.acquire(100, TimeUnit.MILLISECONDS) == null, "no fourth");
        check(one.getParticipantNodes().size() == 3, "three nodes");
        one.returnAll(two);
        Lease again = other.acquire(LIMIT, TimeUnit.SECONDS);
        check(again != null, "returned leases are free");
        other.returnAll(Arrays.asList(third, again));
    }

    private void multiLock() throws Exception {
        InterProcessMultiLock both =
                new InterProcessMultiLock(a, Arrays.asList("/multi-1", "/multi-2"));
        InterProcessMutex second = new InterProcessMutex(b, "/multi-2");
        contended(both, second);
        check(onThread(() -> {
            second.acquire();
            return true;
        }), "held by the other");
        check(!both.acquire(100, TimeUnit.MILLISECONDS), "one is taken");
        check(a.getChildren().forPath("/multi-1").isEmpty(), "the free one was given back");
    }

    private void leaderLatch() throws Exception {
        LeaderLatch one = new LeaderLatch(a, "/latch", "one");
        one.start();
        check(one.await(LIMIT, TimeUnit.SECONDS), "the first leads");
        try (LeaderLatch other = new LeaderLatch(b, "/latch", "other")) {
            other.start();
            waitUntil("two take part", () -> one.getParticipants().size() == 2);
            check(other.getLeader().getId().equals("one") && !other.hasLeadership(), "leader");
            one.close();
            check(other.await(LIMIT, TimeUnit.SECONDS), "the second follows");
        }
    }

    private void leaderSelector() throws Exception {
        BlockingQueue<String> leading = new LinkedBlockingQueue<>();
        CountDownLatch done = new CountDownLatch(1);
        List<LeaderSelector> selectors = new ArrayList<>();
        for (CuratorFramework client : Arrays.asList(a, b)) {
            String name = client == a ? "a" : "b";
            LeaderSelector selector =
                    new LeaderSelector(client, "/selector", new LeaderSelectorListenerAdapter() {
                        @Override
                        public void takeLeadership(CuratorFramework unused) throws Exception {
                            leading.add(name);
                            done.await();
                        }
                    });
            selector.setId(name);
            selector.start();
            selectors.add(selector);
        }
        String first = leading.poll(LIMIT, TimeUnit.SECONDS);
        check(first != null && leading.poll(100, TimeUnit.MILLISECONDS) == null, "one leader");
        waitUntil("two take part", () -> selectors.get(0).getParticipants().size() == 2);
        check(selectors.get(1).getLeader().getId().equals(first), "both know who");
        done.countDown();
        String second = leading.poll(LIMIT, TimeUnit.SECONDS);
        check(second != null && !second.equals(first), "the other in turn");
        selectors.forEach(LeaderSelector::close);
    }

    private void barrier() throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(a, "/barrier");
        barrier.setBarrier();
        check(!new DistributedBarrier(b, "/barrier").waitOnBarrier(100, TimeUnit.MILLISECONDS),
                "closed");
        Future<Boolean> waiting = THREADS.submit(
                () -> new DistributedBarrier(b, "/barrier").waitOnBarrier(LIMIT, TimeUnit.SECONDS));
        Thread.sleep(50);
        barrier.removeBarrier();
        check(waiting.get(LIMIT, TimeUnit.SECONDS), "open");
    }

    /**
     * Both wait inside for each other before they leave: Curator's {@code leave} takes the event of
     * {@code ready}, which its {@code enter} watches, for one of its own, and may then return while
     * the other has not noticed yet that it may enter (GH-1290).
     */
    private void doubleBarrier() throws Exception {
        CountDownLatch inside = new CountDownLatch(2);
        List<Future<Boolean>> visits = new ArrayList<>();
        for (CuratorFramework client : Arrays.asList(a, b)) {
            visits.add(THREADS.submit(() -> {
                DistributedDoubleBarrier gate =
                        new DistributedDoubleBarrier(client, "/double-barrier", 2);
                boolean entered = gate.enter(LIMIT, TimeUnit.SECONDS);
                inside.countDown();
                return entered && inside.await(LIMIT, TimeUnit.SECONDS)
                        && gate.leave(LIMIT, TimeUnit.SECONDS);
            }));
        }
        for (Future<Boolean> visit : visits) {
            check(visit.get(LIMIT, TimeUnit.SECONDS), "entered and left");
        }
    }

    private void sharedCount() throws Exception {
        try (SharedCount one = new SharedCount(a, "/count", 7);
                SharedCount other = new SharedCount(b, "/count", 0)) {
            one.start();
            other.start();
            check(other.getCount() == 7, "the first one's seed");
            one.setCount(8);
            waitUntil("the other sees it", () -> other.getCount() == 8);
            check(other.trySetCount(other.getVersionedValue(), 9), "compared and set");
            check(!one.trySetCount(new SharedCountVersion(one).old(), 10), "too late");
        }
    }

    /** A version from before the last change. */
    private static final class SharedCountVersion {
        private final org.apache.curator.framework.recipes.shared.VersionedValue<Integer> version;

        SharedCountVersion(SharedCount count) throws Exception {
            version = count.getVersionedValue();
            count.setCount(count.getCount() + 1);
        }

        org.apache.curator.framework.recipes.shared.VersionedValue<Integer> old() {
            return version;
        }
    }

    private void sharedValue() throws Exception {
        try (SharedValue one = new SharedValue(a, "/value", bytes("x"));
                SharedValue other = new SharedValue(b, "/value", bytes("y"))) {
            one.start();
            other.start();
            one.setValue(bytes("z"));
            waitUntil("the other sees it", () -> Arrays.equals(other.getValue(), bytes("z")));
        }
    }

    private void atomicLong() throws Exception {
        List<Future<Boolean>> counters = new ArrayList<>();
        for (CuratorFramework client : Arrays.asList(a, b)) {
            DistributedAtomicLong count =
                    new DistributedAtomicLong(client, "/atomic", new RetryNTimes(1000, 1));
            counters.add(THREADS.submit(() -> {
                boolean fine = true;
                for (int i = 0; i < 20; i++) {
                    fine &= count.increment().succeeded();
                }
                return fine;
            }));
        }
        for (Future<Boolean> counter : counters) {
            check(counter.get(LIMIT, TimeUnit.SECONDS), "every increment succeeded");
        }
        DistributedAtomicLong count =
                new DistributedAtomicLong(a, "/atomic", new RetryNTimes(10, 10));
        AtomicValue<Long> last = count.subtract(2L);
        check(last.succeeded() && last.preValue() == 40 && last.postValue() == 38, "40 - 2");
        check(!count.compareAndSet(40L, 1L).succeeded(), "compared");
    }

    private void persistentNode() throws Exception {
        try (PersistentNode node = new PersistentNode(a, CreateMode.EPHEMERAL, false,
                "/persistent", bytes("x"))) {
            node.start();
            check(node.waitForInitialCreate(LIMIT, TimeUnit.SECONDS), "created");
            b.delete().forPath("/persistent");
            waitUntil("it comes back", () -> b.checkExists().forPath("/persistent") != null);
            node.setData(bytes("y"));
            waitUntil("changed",
                    () -> Arrays.equals(b.getData().forPath("/persistent"), bytes("y")));
        }
        waitUntil("gone", () -> b.checkExists().forPath("/persistent") == null);
    }

    private void groupMember() throws Exception {
        GroupMember other = new GroupMember(b, "/group", "other", bytes("x"));
        try (GroupMember one = new GroupMember(a, "/group", "one")) {
            one.start();
            other.start();
            waitUntil("both are there", () -> one.getCurrentMembers().size() == 2);
            check(Arrays.equals(one.getCurrentMembers().get("other"), bytes("x")), "its data");
            other.close();
            waitUntil("one is left", () -> one.getCurrentMembers().size() == 1);
        }
    }

    @SuppressWarnings("deprecation")
    private void nodeCache() throws Exception {
        try (NodeCache cache = new NodeCache(a, "/node-cache")) {
            cache.start(true);
            b.create().forPath("/node-cache", bytes("1"));
            waitUntil("created", () -> cache.getCurrentData() != null);
            b.setData().forPath("/node-cache", bytes("2"));
            waitUntil("changed", () -> Arrays.equals(cache.getCurrentData().getData(), bytes("2")));
            b.delete().forPath("/node-cache");
            waitUntil("gone", () -> cache.getCurrentData() == null);
        }
    }

    @SuppressWarnings("deprecation")
    private void pathChildrenCache() throws Exception {
        b.create().forPath("/path-cache", bytes(""));
        b.create().forPath("/path-cache/x", bytes("1"));
        try (PathChildrenCache cache = new PathChildrenCache(a, "/path-cache", true)) {
            cache.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            check(cache.getCurrentData().size() == 1, "filled");
            b.create().withMode(CreateMode.EPHEMERAL).forPath("/path-cache/y", bytes("2"));
            waitUntil("created", () -> cache.getCurrentData().size() == 2);
            b.delete().forPath("/path-cache/x");
            waitUntil("gone", () -> cache.getCurrentData("/path-cache/x") == null);
        }
    }

    @SuppressWarnings("deprecation")
    private void treeCache() throws Exception {
        b.create().creatingParentsIfNeeded().forPath("/tree-cache/x/y", bytes("1"));
        try (TreeCache cache = new TreeCache(a, "/tree-cache")) {
            cache.start();
            waitUntil("filled", () -> cache.getCurrentData("/tree-cache/x/y") != null);
            b.setData().forPath("/tree-cache/x/y", bytes("2"));
            waitUntil("changed", () -> Arrays.equals(
                    cache.getCurrentData("/tree-cache/x/y").getData(), bytes("2")));
            b.delete().deletingChildrenIfNeeded().forPath("/tree-cache/x");
            waitUntil("gone", () -> cache.getCurrentData("/tree-cache/x/y") == null);
        }
    }

    private void curatorCache() throws Exception {
        b.create().creatingParentsIfNeeded().forPath("/curator-cache/x/y", bytes("1"));
        AtomicInteger changes = new AtomicInteger();
        try (CuratorCache cache = CuratorCache.build(a, "/curator-cache")) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forChanges((before, after) -> changes.incrementAndGet()).build());
            cache.start();
            waitUntil("filled", () -> cache.get("/curator-cache/x/y").isPresent());
            b.setData().forPath("/curator-cache/x/y", bytes("2"));
            waitUntil("changed", () -> changes.get() == 1);
            b.create().forPath("/curator-cache/x/y/z", bytes("3"));
            waitUntil("created", () -> cache.get("/curator-cache/x/y/z").isPresent());
            b.delete().deletingChildrenIfNeeded().forPath("/curator-cache/x");
            waitUntil("gone", () -> cache.size() == 1);
        }
    }

    private void persistentWatcher() throws Exception {
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        try (PersistentWatcher watcher = new PersistentWatcher(a, "/watched", true)) {
            watcher.getListenable().addListener(event -> {
                if (event.getType() != EventType.None) {
                    seen.add(event.getType() + " " + event.getPath());
                }
            });
            CountDownLatch armed = new CountDownLatch(1);
            watcher.getResetListenable().addListener(armed::countDown);
            watcher.start();
            check(armed.await(LIMIT, TimeUnit.SECONDS), "armed");
            b.create().forPath("/watched", bytes(""));
            b.create().forPath("/watched/x", bytes(""));
            b.setData().forPath("/watched/x", bytes("1"));
            b.delete().forPath("/watched/x");
            for (String event : Arrays.asList("NodeCreated /watched", "NodeCreated /watched/x",
                    "NodeDataChanged /watched/x", "NodeDeleted /watched/x")) {
                String next = seen.poll(LIMIT, TimeUnit.SECONDS);
                check(event.equals(next), event + ", and not " + next);
            }
        }
    }

    private void simpleQueue() throws Exception {
        SimpleDistributedQueue one = new SimpleDistributedQueue(a, "/simple-queue");
        SimpleDistributedQueue other = new SimpleDistributedQueue(b, "/simple-queue");
        one.offer(bytes("x"));
        one.offer(bytes("y"));
        check(Arrays.equals(other.peek(), bytes("x")), "x first");
        check(Arrays.equals(other.take(), bytes("x")), "x taken");
        check(Arrays.equals(other.poll(), bytes("y")) && other.poll() == null, "y, and no more");
        Future<byte[]> waiting = THREADS.submit(() -> other.take());
        Thread.sleep(50);
        one.offer(bytes("z"));
        check(Arrays.equals(waiting.get(LIMIT, TimeUnit.SECONDS), bytes("z")), "z awaited");
    }

    private void queue() throws Exception {
        Taken taken = new Taken();
        try (DistributedQueue<String> from = QueueBuilder.builder(a, null, TEXT, "/queue")
                        .buildQueue();
                DistributedQueue<String> to = QueueBuilder.builder(b, taken, TEXT, "/queue")
                        .lockPath("/queue-locks").buildQueue()) {
            from.start();
            for (String item : Arrays.asList("1", "2", "3")) {
                from.put(item);
            }
            check(from.flushPuts(LIMIT, TimeUnit.SECONDS), "all put");
            to.start();
            taken.expect("1", "2", "3");
        }
    }

    private void idQueue() throws Exception {
        Taken taken = new Taken();
        try (DistributedIdQueue<String> from = QueueBuilder.builder(a, null, TEXT, "/id-queue")
                        .buildIdQueue();
                DistributedIdQueue<String> to = QueueBuilder.builder(b, taken, TEXT, "/id-queue")
                        .buildIdQueue()) {
            from.start();
            from.put("1", "one");
            from.put("2", "two");
            check(from.flushPuts(LIMIT, TimeUnit.SECONDS), "all put");
            check(from.remove("one") == 1, "one removed");
            to.start();
            taken.expect("2");
        }
    }

    private void priorityQueue() throws Exception {
        Taken taken = new Taken();
        try (DistributedPriorityQueue<String> from =
                        QueueBuilder.builder(a, null, TEXT, "/priority").buildPriorityQueue(0);
                DistributedPriorityQueue<String> to =
                        QueueBuilder.builder(b, taken, TEXT, "/priority").buildPriorityQueue(0)) {
            from.start();
            from.put("late", 9);
            from.put("early", -1);
            from.put("middle", 3);
            check(from.flushPuts(LIMIT, TimeUnit.SECONDS), "all put");
            to.start();
            taken.expect("early", "middle", "late");
        }
    }

    private void delayQueue() throws Exception {
        Taken taken = new Taken();
        try (DistributedDelayQueue<String> queue =
                QueueBuilder.builder(a, taken, TEXT, "/delay").buildDelayQueue()) {
            queue.start();
            long now = System.currentTimeMillis();
            queue.put("later", now + 600);
            queue.put("sooner", now + 200);
            taken.expect("sooner", "later");
            check(System.currentTimeMillis() >= now + 600, "not too early");
        }
    }

    private void transaction() throws Exception {
        Collection<CuratorTransactionResult> results = a.transaction().forOperations(
                a.transactionOp().create().forPath("/transaction", bytes("1")),
                a.transactionOp().setData().withVersion(0).forPath("/transaction", bytes("2")),
                a.transactionOp().check().withVersion(1).forPath("/transaction"));
        check(results.size() == 3, "three results");
        try {
            b.transaction().forOperations(b.transactionOp().delete().forPath("/transaction"),
                    b.transactionOp().check().forPath("/missing"));
            check(false, "it must fail");
        } catch (org.apache.zookeeper.KeeperException.NoNodeException expected) {
            check(a.checkExists().forPath("/transaction") != null, "nothing happened");
        }
    }

    private void creates() throws Exception {
        a.createContainers("/containers/x");
        check(b.checkExists().forPath("/containers/x") != null, "containers");
        String made = a.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL)
                .forPath("/containers/x/n-");
        check(made.matches("/containers/x/_c_.*-n-0000000000"), made);
        b.setData().idempotent().forPath(made, bytes("x"));
        b.delete().guaranteed().forPath(made);
        a.create().orSetData().forPath("/containers/x/y", bytes("1"));
        a.create().orSetData().forPath("/containers/x/y", bytes("2"));
        check(Arrays.equals(b.getData().forPath("/containers/x/y"), bytes("2")), "set");
    }

    /** What a queue gave. */
    private static final class Taken implements QueueConsumer<String> {
        private final BlockingQueue<String> items = new LinkedBlockingQueue<>();

        @Override
        public void consumeMessage(String item) {
            items.add(item);
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }

        void expect(String... expected) throws InterruptedException {
            for (String item : expected) {
                String next = items.poll(LIMIT, TimeUnit.SECONDS);
                check(item.equals(next), item + ", and not " + next);
            }
            check(items.poll(50, TimeUnit.MILLISECONDS) == null, "no more");
        }
    }

    private static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        @Override
        public byte[] serialize(String item) {
            return bytes(item);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
