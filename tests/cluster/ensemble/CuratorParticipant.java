import java.io.BufferedReader;
import java.io.IOException;
import java.math.BigInteger;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

/**
 * Takes Apache Curator's locks again and again, as a careful program would, and says all that it
 * is told to the recorder; see {@code tests/cluster/ensemble/README.md}.
 *
 * <p>Arguments: {@code CONNECT FOLDER SESSION_MS NAME SEED}.
 */
public final class CuratorParticipant {
    private static final int PERMITS = 2;
    /** Longer than anything takes while nothing is wrong. */
    private static final int PATIENCE_SECONDS = 40;
    private static final int HOLD_MILLIS = 300;
    /** How much of a lock one has, as JSON. */
    private static final String ALONE = "\"Alone\"";

    public static void main(String[] args) throws Exception {
        Random random = new Random(Long.parseLong(args[4]));
        List<Thread> workers = new ArrayList<>();
        for (String kind : List.of("mutex", "rw", "curator-semaphore", "election")) {
            Worker worker = new Worker(args, kind, random.nextLong());
            Thread thread = new Thread(worker::work, kind);
            thread.start();
            workers.add(thread);
        }
        for (Thread worker : workers) {
            worker.join();
        }
        // Not all of the client's threads are daemons in every version.
        System.exit(0);
    }

    /** Contends for one of the locks, with a session of its own. */
    private static final class Worker {
        private final String connect;
        private final Path folder;
        private final int sessionMillis;
        private final String kind;
        private final Random random;
        private final Recorder recorder;

        Worker(String[] args, String kind, long seed) throws IOException {
            this.connect = args[0];
            this.folder = Path.of(args[1]);
            this.sessionMillis = Integer.parseInt(args[2]);
            this.kind = kind;
            this.random = new Random(seed);
            this.recorder = new Recorder(folder.resolve("recorder"), args[3] + "/" + kind);
        }

        /**
         * A failed call may have left a node behind, which would keep everyone out for as long as
         * its session lives; so a session ends with the first failure.
         */
        void work() {
            while (!stopped()) {
                try {
                    session();
                } catch (Exception failed) {
                    String why = "starts anew: " + failed.getClass().getSimpleName();
                    recorder.say(System.nanoTime(), "what {\"Note\":\"" + why + "\"}");
                }
                pause(200);
            }
        }

        private void session() throws Exception {
            CuratorFramework client = CuratorFrameworkFactory.newClient(connect, sessionMillis,
                    sessionMillis, new ExponentialBackoffRetry(50, 4));
            Warnings warnings = new Warnings(recorder);
            client.getConnectionStateListenable().addListener((which, state) -> {
                warnings.hear(state);
                if (state.isConnected()) {
                    tell(which);
                }
            });
            try (client) {
                client.start();
                if (!client.blockUntilConnected(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                    throw new IOException("no server");
                }
                while (!stopped()) {
                    turn(client, warnings);
                    pause(300);
                }
            }
        }

        private void tell(CuratorFramework client) {
            try {
                long session = client.getZookeeperClient().getZooKeeper().getSessionId();
                recorder.say(System.nanoTime(), "session 0x" + Long.toHexString(session));
            } catch (Exception gone) {
                // The connection is lost again.
            }
        }

        private void turn(CuratorFramework client, Warnings warnings) throws Exception {
            switch (kind) {
                case "mutex":
                    NamedMutex mutex = new NamedMutex(client, "/locks/mutex");
                    inTime(mutex.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS));
                    new Turn(client, warnings, "/locks/mutex", ALONE).hold(mutex.node(), mutex::release);
                    break;
                case "rw":
                    NamedWriteLock writer = new NamedWriteLock(client, "/locks/rw");
                    if (random.nextBoolean()) {
                        inTime(writer.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS));
                        new Turn(client, warnings, "/locks/rw", ALONE).hold(writer.node(), writer::release);
                        break;
                    }
                    NamedReadLock reader = new NamedReadLock(client, "/locks/rw", writer);
                    inTime(reader.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS));
                    new Turn(client, warnings, "/locks/rw", "\"Reader\"").hold(reader.node(), reader::release);
                    break;
                case "election":
                    LeaderLatch latch = new LeaderLatch(client, "/locks/election", "curator");
                    latch.start();
                    try {
                        inTime(latch.await(PATIENCE_SECONDS, TimeUnit.SECONDS));
                    } catch (Exception failed) {
                        latch.close();
                        throw failed;
                    }
                    new Turn(client, warnings, "/locks/election", ALONE)
                            .hold(latch.getOurPath(), latch::close);
                    break;
                default:
                    String path = "/locks/curator-semaphore";
                    InterProcessSemaphoreV2 semaphore =
                            new InterProcessSemaphoreV2(client, path, PERMITS);
                    Lease lease = semaphore.acquire(PATIENCE_SECONDS, TimeUnit.SECONDS);
                    inTime(lease != null);
                    new Turn(client, warnings, path, "{\"Permits\":{\"taken\":1,\"of\":" + PERMITS + "}}")
                            .hold(path + "/leases/" + lease.getNodeName(), lease::close);
            }
        }

        private void inTime(boolean acquired) throws IOException {
            if (!acquired) {
                throw new IOException("not in time");
            }
        }

        private boolean inTrouble() {
            return Files.exists(folder.resolve("trouble"));
        }

        private boolean stopped() {
            return Files.exists(folder.resolve("stop"));
        }

        private void pause(int mostMillis) {
            try {
                TimeUnit.MILLISECONDS.sleep(random.nextInt(mostMillis));
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }

        /** From the moment at which the lock is said to be held. */
        private final class Turn {
            private final long believed = System.nanoTime();
            private final CuratorFramework client;
            private final Warnings warnings;
            private final String lock;
            private final String share;

            Turn(CuratorFramework client, Warnings warnings, String lock, String share) {
                this.client = client;
                this.warnings = warnings;
                this.lock = lock;
                this.share = share;
            }

            void hold(String node, Release release) throws Exception {
                try {
                    Stat stat = client.checkExists().forPath(node);
                    long token = stat == null ? 0 : stat.getCzxid();
                    recorder.say(believed, what("Believes", token, ",\"share\":" + share));
                    work(node, token);
                    recorder.say(warnings.firstSince(believed), what("Stops", token, ""));
                } finally {
                    release.release();
                }
            }

            private void work(String node, long token) throws Exception {
                long end = believed + TimeUnit.MILLISECONDS.toNanos(random.nextInt(HOLD_MILLIS));
                // Through all of what goes wrong, or in the middle of it.
                boolean stubborn = random.nextInt(4) > 0;
                boolean writes = share.equals(ALONE) && token != 0;
                while ((System.nanoTime() - end < 0 || stubborn && inTrouble())
                        && !warnings.anySince(believed)) {
                    pause(100);
                    if (writes && random.nextInt(3) == 0) {
                        write(node, token);
                    }
                }
            }

            private void write(String node, long token) throws Exception {
                if (random.nextBoolean()) {
                    recorder.write(lock, token);
                    return;
                }
                byte[] data = Long.toString(token).getBytes(StandardCharsets.US_ASCII);
                String register = lock.replaceFirst("/locks", "/registers");
                long zxid = client.transaction()
                        .forOperations(client.transactionOp().check().forPath(node),
                                client.transactionOp().setData().forPath(register, data))
                        .get(1).getResultStat().getMzxid();
                recorder.say(System.nanoTime(), what("Committed", token, ",\"zxid\":" + zxid));
            }

            /** Something that happened with this lock; a czxid is the upper part of a token. */
            private String what(String kind, long czxid, String more) {
                BigInteger token = BigInteger.valueOf(czxid).shiftLeft(32);
                return "what {\"" + kind + "\":{\"lock\":\"" + lock + "\",\"token\":" + token + more + "}}";
            }
        }
    }

    private interface Release {
        void release() throws Exception;
    }

    /** What the connection listener has heard that a careful program stops at. */
    private static final class Warnings {
        private final Recorder recorder;
        private final List<Long> times = new ArrayList<>();

        Warnings(Recorder recorder) {
            this.recorder = recorder;
        }

        synchronized void hear(ConnectionState state) {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                long now = System.nanoTime();
                times.add(now);
                recorder.say(now, "what \"Warned\"");
            }
        }

        synchronized boolean anySince(long begin) {
            return times.stream().anyMatch(time -> time - begin >= 0);
        }

        /** The first warning since then; now if there was none. */
        synchronized long firstSince(long begin) {
            return times.stream().filter(time -> time - begin >= 0).findFirst()
                    .orElseGet(System::nanoTime);
        }
    }

    /** The way to the recorder, whose clock is CLOCK_MONOTONIC as that of System.nanoTime. */
    private static final class Recorder {
        private final Path socket;
        private final String who;
        private final SocketChannel events;

        Recorder(Path socket, String who) throws IOException {
            this.socket = socket;
            this.who = who;
            this.events = introduce();
        }

        synchronized void say(long nanos, String words) {
            try {
                send(events, nanos + " " + words);
            } catch (IOException gone) {
                // The recorder ends last, or the test has failed anyway.
            }
        }

        void write(String lock, long token) throws IOException {
            try (SocketChannel channel = introduce()) {
                send(channel, System.nanoTime() + " write " + lock + " " + token);
                new BufferedReader(Channels.newReader(channel, StandardCharsets.US_ASCII)).readLine();
            }
        }

        private SocketChannel introduce() throws IOException {
            SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
            channel.connect(UnixDomainSocketAddress.of(socket));
            send(channel, who);
            return channel;
        }

        private static void send(SocketChannel channel, String line) throws IOException {
            ByteBuffer bytes = StandardCharsets.US_ASCII.encode(line + "\n");
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }
    }

    /** Tells the path of its own node, which Curator shows to subclasses only. */
    private static final class NamedMutex extends InterProcessMutex {
        NamedMutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    private static final class NamedWriteLock extends InterProcessReadWriteLock.WriteLock {
        NamedWriteLock(CuratorFramework client, String path) {
            super(client, path, null);
        }

        String node() {
            return getLockPath();
        }
    }

    private static final class NamedReadLock extends InterProcessReadWriteLock.ReadLock {
        NamedReadLock(CuratorFramework client, String path, NamedWriteLock writer) {
            super(client, path, null, writer);
        }

        String node() {
            return getLockPath();
        }
    }
}
