import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes a lock again and again with Apache Curator's {@code InterProcessMutex}, and checks each
 * time, through the file system alone, that nobody else is inside.
 *
 * <p>Arguments: {@code CONNECT LOCK_PATH ROUNDS|SECONDSs STATE_DIR SESSION_MS NAME SEED HOLD_MS}.
 * The state directory is shared with all other contenders of the lock; see
 * {@code tests/interop/README.md}.
 *
 * <p>Exit code: 0 done, 2 an error, 3 two at once, 4 the own node was still there after a release.
 */
public final class CuratorContender {
    private final CuratorFramework client;
    private final NamedMutex mutex;
    private final Path state;
    private final String name;
    private final Random random;
    private final int holdMillis;

    private CuratorContender(CuratorFramework client, String lockPath, Path state, String name,
            long seed, int holdMillis) {
        this.client = client;
        this.mutex = new NamedMutex(client, lockPath);
        this.state = state;
        this.name = name;
        this.random = new Random(seed);
        this.holdMillis = holdMillis;
    }

    public static void main(String[] args) {
        if (args.length != 8) {
            System.err.println("arguments: CONNECT LOCK_PATH ROUNDS|SECONDSs STATE_DIR"
                    + " SESSION_MS NAME SEED HOLD_MS");
            System.exit(2);
        }
        int sessionMillis = Integer.parseInt(args[4]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], sessionMillis,
                sessionMillis, new ExponentialBackoffRetry(50, 10));
        int code;
        try (client) {
            client.start();
            CuratorContender contender = new CuratorContender(client, args[1], Path.of(args[3]),
                    args[5], Long.parseLong(args[6]), Integer.parseInt(args[7]));
            contender.run(new Limit(args[2]));
            code = 0;
        } catch (Failure failure) {
            System.out.println(failure.getMessage());
            code = failure.code;
        } catch (Exception error) {
            error.printStackTrace();
            code = 2;
        }
        // Not all of the client's threads are daemons in every version.
        System.exit(code);
    }

    private void run(Limit limit) throws Exception {
        int round = 0;
        while (!limit.reached(round)) {
            mutex.acquire();
            String node = mutex.node();
            try {
                criticalSection(client.checkExists().forPath(node).getCzxid());
            } finally {
                mutex.release();
            }
            if (client.checkExists().forPath(node) != null) {
                throw new Failure(4, "LEFTOVER " + node);
            }
            round++;
            System.out.println("ROUND " + round);
        }
        System.out.println("DONE " + round);
    }

    private void criticalSection(long czxid) throws Exception {
        Path marker = state.resolve("marker");
        try {
            Files.writeString(marker, name, StandardOpenOption.CREATE_NEW);
        } catch (FileAlreadyExistsException taken) {
            throw new Failure(3, "VIOLATION " + name + " entered while " + reader(marker)
                    + " was inside");
        }
        Path counter = state.resolve("counter");
        long count = read(counter) + 1;
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(random.nextInt(holdMillis + 1)));
        Files.writeString(counter, Long.toString(count));
        Files.writeString(state.resolve("log"), name + " " + count + " " + czxid + "\n",
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        Files.delete(marker);
    }

    private static long read(Path counter) throws IOException {
        try {
            return Long.parseLong(Files.readString(counter, StandardCharsets.US_ASCII).trim());
        } catch (NoSuchFileException first) {
            return 0;
        }
    }

    private static String reader(Path marker) {
        try {
            return Files.readString(marker);
        } catch (IOException goneMeanwhile) {
            return "another";
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

    /** When to stop: after a number of rounds, or of seconds. */
    private static final class Limit {
        private final int rounds;
        private final long endNanos;

        Limit(String text) {
            boolean seconds = text.endsWith("s");
            int number = Integer.parseInt(seconds ? text.substring(0, text.length() - 1) : text);
            rounds = seconds ? Integer.MAX_VALUE : number;
            endNanos = System.nanoTime()
                    + (seconds ? TimeUnit.SECONDS.toNanos(number) : TimeUnit.DAYS.toNanos(1));
        }

        boolean reached(int done) {
            return done >= rounds || System.nanoTime() - endNanos >= 0;
        }
    }

    /** Something that must never happen did. */
    private static final class Failure extends Exception {
        private static final long serialVersionUID = 1L;
        final int code;

        Failure(int code, String message) {
            super(message);
            this.code = code;
        }
    }
}
