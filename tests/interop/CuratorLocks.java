import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

/**
 * Takes turns with one of Apache Curator's locks for some seconds, and checks each time, through
 * the file system alone, that nobody is inside who must not be.
 *
 * <p>Arguments: {@code CONNECT KIND PATH SECONDS STATE_DIR SESSION_MS NAME SEED}; see
 * {@code tests/interop/README.md}.
 */
public final class CuratorLocks {
    /** The names of several locks below the path, and of their folders. */
    private static final List<String> ROOMS = List.of("a", "b", "c");

    private final CuratorFramework client;
    private final String path;
    private final String name;
    private final Random random;
    private final long endNanos;
    /** Where those show themselves who are inside. */
    private final Path state;
    private final Room room;

    private CuratorLocks(CuratorFramework client, String[] args) {
        this.client = client;
        this.path = args[2];
        this.endNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(args[3]));
        this.state = Path.of(args[4]);
        this.name = args[6];
        this.random = new Random(Long.parseLong(args[7]));
        this.room = new Room(state);
    }

    private static CuratorFramework client(String connect, int sessionMillis) {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(connect)
                .sessionTimeoutMs(sessionMillis)
                .connectionTimeoutMs(sessionMillis)
                .retryPolicy(new ExponentialBackoffRetry(50, 10));
        String digest = System.getenv("CONTENDER_DIGEST");
        if (digest != null) {
            builder.authorization("digest", digest.getBytes(StandardCharsets.UTF_8));
            builder.aclProvider(new CreatorAndReaders());
        }
        return builder.build();
    }

    /** The creator may do everything, and everyone may read. */
    private static final class CreatorAndReaders implements ACLProvider {
        @Override
        public List<ACL> getDefaultAcl() {
            List<ACL> acl = new ArrayList<>(ZooDefs.Ids.CREATOR_ALL_ACL);
            acl.addAll(ZooDefs.Ids.READ_ACL_UNSAFE);
            return acl;
        }

        @Override
        public List<ACL> getAclForPath(String path) {
            return getDefaultAcl();
        }
    }

    public static void main(String[] args) {
        int sessionMillis = Integer.parseInt(args[5]);
        CuratorFramework client = client(args[0], sessionMillis);
        int code;
        try (client) {
            client.start();
            new CuratorLocks(client, args).run(args[1]);
            System.out.println("DONE");
            code = 0;
        } catch (Violation violation) {
            System.out.println(violation.getMessage());
            code = 3;
        } catch (Exception error) {
            error.printStackTrace();
            code = 2;
        }
        // Not all of the client's threads are daemons in every version.
        System.exit(code);
    }

    private void run(String kind) throws Exception {
        String[] words = kind.split(":");
        Turn turn;
        switch (words[0]) {
            case "mutex":
                turn = mutex();
                break;
            case "rw":
                turn = readWrite();
                break;
            case "multi":
                turn = several();
                break;
            case "semaphore":
                turn = semaphore(Integer.parseInt(words[1]));
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
        while (System.nanoTime() - endNanos < 0) {
            String tag = turn.take();
            if (tag != null) {
                System.out.println("TURN " + tag);
            }
            pause(10);
        }
    }

    private Turn mutex() {
        NamedMutex mutex = new NamedMutex(client, path);
        return () -> {
            mutex.acquire();
            try {
                room.enter("x", 1);
                room.appendToken(mutex);
                room.count();
                room.leave("x");
            } finally {
                mutex.release();
            }
            return "x";
        };
    }

    private Turn readWrite() {
        NamedWriteLock writeLock = new NamedWriteLock(client, path);
        InterProcessReadWriteLock.ReadLock readLock =
                new InterProcessReadWriteLock.ReadLock(client, path, null, writeLock);
        return () -> {
            int choice = random.nextInt(100);
            if (choice < 50) {
                readLock.acquire();
                try {
                    room.enter("r", 1);
                    pause(20);
                    room.leave("r");
                } finally {
                    readLock.release();
                }
                return "r";
            }
            writeLock.acquire();
            if (choice < 85) {
                try {
                    room.enter("x", 1);
                    room.count();
                    room.leave("x");
                } finally {
                    writeLock.release();
                }
                return "x";
            }
            downgrade(writeLock);
            return "d";
        };
    }

    /**
     * As Curator itself does since 5.5. Before, it put the reader at the end of the line, and lost
     * its place (CURATOR-621).
     */
    private void downgrade(NamedWriteLock writeLock) throws Exception {
        String writer = writeLock.node();
        String number = writer.substring(writer.length() - 10);
        String reader;
        room.enter("x", 1);
        try {
            room.count();
            reader = client.create().withMode(CreateMode.EPHEMERAL)
                    .forPath(path + "/_c_" + UUID.randomUUID() + "-__READ__" + number);
            room.enter("r", 0);
            room.leave("x");
        } finally {
            writeLock.release();
        }
        pause(20);
        room.alone("r", 1);
        room.leave("r");
        client.delete().guaranteed().forPath(reader);
    }

    /** Some of the locks, each of which has a room of its own. */
    private Turn several() {
        return () -> {
            StringBuilder tag = new StringBuilder();
            List<NamedMutex> mutexes = new ArrayList<>();
            List<Room> rooms = new ArrayList<>();
            // In the order of their paths, which all must keep.
            for (String letter : ROOMS) {
                if (random.nextInt(3) > 0) {
                    tag.append(letter);
                    mutexes.add(new NamedMutex(client, path + "/" + letter));
                    rooms.add(new Room(state.resolve(letter)));
                }
            }
            if (mutexes.isEmpty()) {
                return null;
            }
            InterProcessLock all = new InterProcessMultiLock(new ArrayList<>(mutexes));
            all.acquire();
            try {
                for (int i = 0; i < rooms.size(); i++) {
                    rooms.get(i).enter("x", 1);
                    rooms.get(i).appendToken(mutexes.get(i));
                }
                for (Room each : rooms) {
                    each.count();
                }
                for (Room each : rooms) {
                    each.leave("x");
                }
            } finally {
                all.release();
            }
            return tag.toString();
        };
    }

    private Turn semaphore(int permits) {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, permits);
        return () -> {
            Lease lease = semaphore.acquire();
            try {
                room.enter("p", permits);
                pause(20);
                room.leave("p");
            } finally {
                semaphore.returnLease(lease);
            }
            return "p";
        };
    }

    private void pause(int mostMillis) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep(random.nextInt(mostMillis + 1));
    }

    /** The folder in which those show themselves who hold one lock. */
    private final class Room {
        private final Path folder;

        Room(Path folder) {
            this.folder = folder;
        }

        /** Shows that one is inside; then looks who else is. Of two, the later one sees the other. */
        void enter(String tag, int permits) throws Exception {
            Files.writeString(inside(tag), "", StandardOpenOption.CREATE_NEW);
            if (permits > 0) {
                alone(tag, permits);
            }
        }

        void alone(String tag, int permits) throws Exception {
            List<String> others;
            try (Stream<Path> files = Files.list(folder.resolve("inside"))) {
                others = files.map(file -> file.getFileName().toString())
                        .filter(file -> !file.equals(tag + "-" + name))
                        .toList();
            }
            boolean fine;
            switch (tag) {
                case "x":
                    fine = others.isEmpty();
                    break;
                case "r":
                    fine = others.stream().noneMatch(other -> other.startsWith("x-"));
                    break;
                default:
                    fine = others.size() < permits;
            }
            if (!fine) {
                throw new Violation("VIOLATION " + tag + "-" + name + " with " + others);
            }
        }

        void leave(String tag) throws IOException {
            Files.delete(inside(tag));
        }

        private Path inside(String tag) {
            return folder.resolve("inside").resolve(tag + "-" + name);
        }

        void count() throws Exception {
            Path counter = folder.resolve("counter");
            long count = 0;
            try {
                count = Long.parseLong(Files.readString(counter, StandardCharsets.US_ASCII).trim());
            } catch (NoSuchFileException first) {
                // Nobody has been inside before.
            }
            pause(20);
            Path next = folder.resolve("counter-" + name);
            Files.writeString(next, Long.toString(count + 1));
            Files.move(next, counter, StandardCopyOption.ATOMIC_MOVE);
        }

        void appendToken(NamedMutex mutex) throws Exception {
            long token = client.checkExists().forPath(mutex.node()).getCzxid();
            Files.writeString(folder.resolve("log"), token + "\n", StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
        }
    }

    private interface Turn {
        /** Tells which kind of turn it was; null if it was none. */
        String take() throws Exception;
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

    /** Something that must never happen did. */
    private static final class Violation extends Exception {
        private static final long serialVersionUID = 1L;

        Violation(String message) {
            super(message);
        }
    }
}
