import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryNTimes;

/**
 * Measures Apache Curator's recipes. Argument: where to connect.
 *
 * <p>Reads orders such as {@code cycles TASKS WARM_UP_MS MEASURE_MS}, and answers each with a line of
 * JSON. Ends with its input. The orders: {@code cycles} and {@code handoffs} of {@code
 * InterProcessMutex}, {@code latches} (hand-overs of {@code LeaderLatch}), {@code counter} ({@code
 * DistributedAtomicLong}), {@code queue} ({@code DistributedQueue} with a lock path), {@code barrier} ({@code
 * DistributedDoubleBarrier}), {@code cache} (a {@code CuratorCache} of so many nodes is filled once),
 * {@code changes} (how soon such a cache tells of them) and {@code group} (a {@code GroupMember} of the
 * group of that name waits until it sees so many; with 0 it leaves).
 */
public final class CuratorBench {
    private final String servers;
    private final CuratorFramework shared;
    private GroupMember member;

    private CuratorBench(String servers) throws InterruptedException {
        this.servers = servers;
        this.shared = connect();
    }

    public static void main(String[] args) throws Exception {
        CuratorBench bench = new CuratorBench(args[0]);
        BufferedReader orders = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        String order;
        while ((order = orders.readLine()) != null) {
            String answer;
            try {
                answer = bench.perform(order.split(" "));
            } catch (Exception error) {
                answer = "{\"error\":\"" + error.toString().replaceAll("[\"\\\\\n]", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    private String perform(String[] order) throws Exception {
        int tasks = Integer.parseInt(order[1]);
        Window window = new Window(Long.parseLong(order[2]), Long.parseLong(order[3]));
        switch (order[0]) {
            case "cycles":
                return cycles(tasks, window);
            case "handoffs":
                return handOffs(tasks, CuratorBench::mutex, window);
            case "latches":
                return handOffs(tasks, CuratorBench::latch, window);
            case "counter":
                return counter(tasks, window);
            case "queue":
                return queue(tasks, window);
            case "barrier":
                return barrier(tasks, window);
            case "cache":
                return fillCache(tasks);
            case "changes":
                return changes(tasks, window);
            case "group":
                return group(tasks, Integer.parseInt(order[2]));
            default:
                throw new IOException("no such order: " + order[0]);
        }
    }

    private CuratorFramework connect() throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, 10_000, 10_000,
                new ExponentialBackoffRetry(50, 10));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    /** Each thread has a lock of its own, which nobody else wants. */
    private String cycles(int tasks, Window window) throws Exception {
        List<Callable<Times[]>> threads = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            InterProcessMutex mutex = new InterProcessMutex(shared, "/curator/cycles-" + task);
            threads.add(() -> cycle(mutex, window));
        }
        window.begin();
        Times acquires = new Times();
        Times cycles = new Times();
        for (Times[] times : runAll(threads)) {
            acquires.add(times[0]);
            cycles.add(times[1]);
        }
        return String.format(Locale.ROOT, "{\"per_second\":%.3f,\"acquire\":%s,\"latency\":%s}",
                cycles.count() / window.seconds(), acquires.json(), cycles.json());
    }

    private static Times[] cycle(InterProcessMutex mutex, Window window) throws Exception {
        Times acquires = new Times();
        Times cycles = new Times();
        long start = System.nanoTime();
        while (!window.isOver(start)) {
            mutex.acquire();
            long acquired = System.nanoTime();
            mutex.release();
            long end = System.nanoTime();
            if (window.counts(end)) {
                acquires.add(acquired - start);
                cycles.add(end - start);
            }
            start = end;
        }
        return new Times[] {acquires, cycles};
    }

    /** What all threads want: waits for it, and returns what gives it back. */
    private interface Wanted {
        AutoCloseable take() throws Exception;
    }

    private static Wanted mutex(CuratorFramework connection) {
        InterProcessMutex mutex = new InterProcessMutex(connection, "/curator/hand-offs");
        return () -> {
            mutex.acquire();
            return mutex::release;
        };
    }

    /** A latch can be used once. */
    private static Wanted latch(CuratorFramework connection) {
        return () -> {
            LeaderLatch latch = new LeaderLatch(connection, "/curator/latch");
            latch.start();
            latch.await();
            return latch;
        };
    }

    /** All threads want one thing, each through a connection of its own. */
    private String handOffs(int clients, Function<CuratorFramework, Wanted> kind, Window window)
            throws Exception {
        List<CuratorFramework> connections = new ArrayList<>();
        List<Callable<Times>> threads = new ArrayList<>();
        Baton baton = new Baton();
        for (int index = 0; index < clients; index++) {
            CuratorFramework connection = connect();
            connections.add(connection);
            Wanted wanted = kind.apply(connection);
            int me = index;
            threads.add(() -> contend(wanted, me, baton, window));
        }
        window.begin();
        Times waits = new Times();
        for (Times times : runAll(threads)) {
            waits.add(times);
        }
        for (CuratorFramework connection : connections) {
            connection.close();
        }
        return String.format(Locale.ROOT,
                "{\"per_second\":%.3f,\"grants_per_second\":%.3f,\"latency\":%s}",
                waits.count() / window.seconds(), baton.grants / window.seconds(), waits.json());
    }

    private static Times contend(Wanted wanted, int me, Baton baton, Window window)
            throws Exception {
        Times waits = new Times();
        while (!window.isOver(System.nanoTime())) {
            AutoCloseable held = wanted.take();
            long now = System.nanoTime();
            if (window.counts(now)) {
                baton.grants++;
                if (baton.holder >= 0 && baton.holder != me) {
                    waits.add(now - baton.released);
                }
            }
            baton.holder = me;
            baton.released = System.nanoTime();
            held.close();
        }
        return waits;
    }

    /** All threads add 1 to one number; an add that was given up is not counted. */
    private String counter(int tasks, Window window) throws Exception {
        DistributedAtomicLong counter =
                new DistributedAtomicLong(shared, "/bench-counter", new RetryNTimes(10, 10));
        List<Callable<Times>> threads = new ArrayList<>();
        for (int task = 0; task < tasks; task++) {
            threads.add(() -> {
                Times adds = new Times();
                long start = System.nanoTime();
                while (!window.isOver(start)) {
                    boolean added = counter.add(1L).succeeded();
                    long end = System.nanoTime();
                    if (added && window.counts(end)) {
                        adds.add(end - start);
                    }
                    start = end;
                }
                return adds;
            });
        }
        window.begin();
        Times adds = new Times();
        for (Times times : runAll(threads)) {
            adds.add(times);
        }
        return String.format(Locale.ROOT, "{\"per_second\":%.3f,\"latency\":%s}",
                adds.count() / window.seconds(), adds.json());
    }

    /** So many items are on their way at any time. */
    private static final int ON_THEIR_WAY = 256;

    /**
     * Items from their put until a consumer is done with them, which is before they are deleted. Each consumer has a
     * connection of its own.
     */
    private String queue(int consumers, Window window) throws Exception {
        String path = "/curator/queue-" + System.nanoTime();
        Semaphore free = new Semaphore(ON_THEIR_WAY);
        AtomicLong done = new AtomicLong();
        List<CuratorFramework> connections = new ArrayList<>();
        List<DistributedQueue<byte[]>> queues = new ArrayList<>();
        for (int index = 0; index < consumers; index++) {
            connections.add(connect());
            queues.add(start(connections.get(index), new Consumer(() -> {
                if (window.counts(System.nanoTime())) {
                    done.incrementAndGet();
                }
                free.release();
            }), path));
        }
        DistributedQueue<byte[]> putting = start(shared, null, path);
        window.begin();
        while (!window.isOver(System.nanoTime())) {
            if (free.tryAcquire(10, TimeUnit.MILLISECONDS)) {
                putting.put(new byte[100]);
            }
        }
        putting.close();
        for (DistributedQueue<byte[]> queue : queues) {
            queue.close();
        }
        for (CuratorFramework connection : connections) {
            connection.close();
        }
        return String.format(Locale.ROOT, "{\"per_second\":%.3f}", done.get() / window.seconds());
    }

    private static DistributedQueue<byte[]> start(CuratorFramework connection, Consumer consumer, String path)
            throws Exception {
        DistributedQueue<byte[]> queue = QueueBuilder.builder(connection, consumer, new Bytes(), path)
                .lockPath(path + "-locks").buildQueue();
        queue.start();
        return queue;
    }

    /** Does something for each item. */
    private record Consumer(Runnable work) implements QueueConsumer<byte[]> {
        @Override
        public void consumeMessage(byte[] item) {
            work.run();
        }

        @Override
        public void stateChanged(CuratorFramework client, ConnectionState state) {
        }
    }

    /** Items are bytes. */
    private static final class Bytes implements QueueSerializer<byte[]> {
        @Override
        public byte[] serialize(byte[] item) {
            return item;
        }

        @Override
        public byte[] deserialize(byte[] bytes) {
            return bytes;
        }
    }

    /** How often it is tried, and how long a party may stand still. */
    private static final int TRIES = 5;
    private static final long STANDS_STILL_MILLIS = 5_000;

    /**
     * Rounds that all parties enter and leave together. Each has a connection of its own. Now and then a party is not told
     * that its round has opened, as the others have left before it looks; then the rest is given up, and it is tried again.
     */
    private String barrier(int parties, Window window) throws Exception {
        for (int tries = 0; tries < TRIES; tries++) {
            Times rounds = rounds(parties, window);
            if (rounds != null) {
                return String.format(Locale.ROOT, "{\"per_second\":%.3f,\"latency\":%s}",
                        rounds.count() / window.seconds(), rounds.json());
            }
        }
        throw new IOException("a party stood still, " + TRIES + " times");
    }

    private Times rounds(int parties, Window window) throws Exception {
        String path = "/curator/barrier-" + System.nanoTime();
        AtomicBoolean isLast = new AtomicBoolean();
        List<CuratorFramework> connections = new ArrayList<>();
        List<Callable<Times>> threads = new ArrayList<>();
        for (int index = 0; index < parties; index++) {
            CuratorFramework connection = connect();
            connections.add(connection);
            boolean decides = index == 0;
            threads.add(() -> takePart(connection, path, parties, decides, isLast, window));
        }
        window.begin();
        ExecutorService pool = Executors.newFixedThreadPool(parties);
        try {
            long limit = window.millis() + STANDS_STILL_MILLIS;
            Times rounds = new Times();
            for (Future<Times> part : pool.invokeAll(threads, limit, TimeUnit.MILLISECONDS)) {
                if (part.isCancelled()) {
                    return null;
                }
                rounds.add(part.get());
            }
            return rounds;
        } finally {
            pool.shutdown();
            for (CuratorFramework connection : connections) {
                connection.close();
            }
        }
    }

    /**
     * On two paths in turns: on one path, whoever is slow to leave would wait for those who have entered the next round.
     */
    private static Times takePart(CuratorFramework connection, String path, int parties, boolean decides,
            AtomicBoolean isLast, Window window) throws Exception {
        Times rounds = new Times();
        long start = System.nanoTime();
        for (int round = 0; true; round++) {
            DistributedDoubleBarrier barrier =
                    new DistributedDoubleBarrier(connection, path + "/" + round % 2, parties);
            barrier.enter();
            if (decides && window.isOver(System.nanoTime())) {
                isLast.set(true);
            }
            barrier.leave();
            long end = System.nanoTime();
            if (decides && window.counts(end)) {
                rounds.add(end - start);
            }
            if (isLast.get()) {
                return rounds;
            }
            start = end;
        }
    }

    /** Until a cache says that it has all of so many nodes, once. */
    private String fillCache(int nodes) throws Exception {
        Times time = new Times();
        CountDownLatch filled = new CountDownLatch(1);
        try (CuratorCache cache = CuratorCache.build(shared, "/bench-cache-" + nodes)) {
            cache.listenable().addListener(
                    CuratorCacheListener.builder().forInitialized(filled::countDown).build());
            long start = System.nanoTime();
            cache.start();
            filled.await();
            time.add(System.nanoTime() - start);
            if (cache.size() != nodes + 1) {
                throw new IOException(cache.size() + " nodes in the cache");
            }
        }
        return "{\"latency\":" + time.json() + "}";
    }

    /** From the call that changes a node to a cache's word of it, over another connection. */
    private String changes(int nodes, Window window) throws Exception {
        String node = "/bench-cache-" + nodes + "/d-000/n-000";
        CountDownLatch filled = new CountDownLatch(1);
        LinkedBlockingQueue<Long> seen = new LinkedBlockingQueue<>();
        Times times = new Times();
        try (CuratorFramework reader = connect();
                CuratorCache cache = CuratorCache.build(reader, "/bench-cache-" + nodes)) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forInitialized(filled::countDown)
                    .forChanges((before, now) -> seen.add(System.nanoTime())).build());
            cache.start();
            filled.await();
            window.begin();
            while (!window.isOver(System.nanoTime())) {
                long start = System.nanoTime();
                shared.setData().forPath(node, new byte[100]);
                Long end = seen.poll(30, TimeUnit.SECONDS);
                if (end == null) {
                    throw new IOException("a change was not seen");
                }
                if (window.counts(end)) {
                    times.add(end - start);
                }
            }
        }
        return "{\"latency\":" + times.json() + "}";
    }

    /** Is a member of the group of this name, and waits until it sees so many; with 0 it leaves. */
    private String group(int name, int members) throws Exception {
        if (member == null) {
            member = new GroupMember(shared, "/bench-group-" + name, "curator", new byte[0]);
            member.start();
        }
        if (members == 0) {
            member.close();
            return "{}";
        }
        while (member.getCurrentMembers().size() != members) {
            Thread.sleep(1);
        }
        return "{}";
    }

    private static <T> List<T> runAll(List<Callable<T>> threads)
            throws InterruptedException, ExecutionException {
        ExecutorService pool = Executors.newFixedThreadPool(threads.size());
        try {
            List<T> results = new ArrayList<>();
            for (Future<T> result : pool.invokeAll(threads)) {
                results.add(result.get());
            }
            return results;
        } finally {
            pool.shutdown();
        }
    }

    /** What one holder leaves for the next; only ever used by who holds the lock. */
    private static final class Baton {
        private volatile int holder = -1;
        private volatile long released;
        private volatile long grants;
    }

    /** Warm-up, then the time that counts. */
    private static final class Window {
        private final long warmUpNanos;
        private final long measureNanos;
        private volatile long opens;

        Window(long warmUpMillis, long measureMillis) {
            warmUpNanos = warmUpMillis * 1_000_000;
            measureNanos = measureMillis * 1_000_000;
        }

        void begin() {
            opens = System.nanoTime() + warmUpNanos;
        }

        boolean counts(long end) {
            return end - opens >= 0 && !isOver(end);
        }

        boolean isOver(long now) {
            return now - opens >= measureNanos;
        }

        long millis() {
            return (warmUpNanos + measureNanos) / 1_000_000;
        }

        double seconds() {
            return measureNanos / 1e9;
        }
    }

    /** All durations, in nanoseconds. */
    private static final class Times {
        private long[] nanos = new long[1024];
        private int count;

        void add(long duration) {
            if (count == nanos.length) {
                nanos = Arrays.copyOf(nanos, 2 * count);
            }
            nanos[count++] = duration;
        }

        void add(Times others) {
            for (int i = 0; i < others.count; i++) {
                add(others.nanos[i]);
            }
        }

        int count() {
            return count;
        }

        String json() {
            long[] sorted = Arrays.copyOf(nanos, count);
            Arrays.sort(sorted);
            return String.format(Locale.ROOT,
                    "{\"count\":%d,\"p50\":%d,\"p99\":%d,\"p999\":%d,\"max\":%d}",
                    count, at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999), at(sorted, 1));
        }

        private static long at(long[] sorted, double quantile) {
            if (sorted.length == 0) {
                return 0;
            }
            int rank = (int) Math.ceil(quantile * sorted.length);
            return sorted[Math.max(rank, 1) - 1];
        }
    }
}
