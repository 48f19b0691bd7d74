import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Does with one of Apache Curator's read-write locks what it is told, step by step. Arguments:
 * {@code CONNECT PATH SESSION_MS FOLDER}; see {@code tests/interop/README.md}.
 */
public final class CuratorSteps {
    private final InterProcessReadWriteLock lock;

    private CuratorSteps(CuratorFramework client, String path) {
        lock = new InterProcessReadWriteLock(client, path);
    }

    public static void main(String[] args) throws Exception {
        int sessionMillis = Integer.parseInt(args[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], sessionMillis,
                sessionMillis, new ExponentialBackoffRetry(50, 10));
        try (client) {
            client.start();
            client.blockUntilConnected();
            CuratorSteps steps = new CuratorSteps(client, args[1]);
            String step;
            for (int number = 0; !(step = await(args[3], number)).equals("end"); number++) {
                steps.take(step);
                System.out.println("DONE " + step);
            }
        }
        System.exit(0);
    }

    /** All steps are taken by one thread, which is who holds a lock in Curator. */
    private void take(String step) throws Exception {
        switch (step) {
            case "write":
                lock.writeLock().acquire();
                break;
            case "read":
                lock.readLock().acquire();
                break;
            case "release-write":
                lock.writeLock().release();
                break;
            case "release-read":
                lock.readLock().release();
                break;
            default:
                throw new IllegalArgumentException(step);
        }
    }

    /** The next step, from a file that appears when it is to be taken. */
    private static String await(String folder, int number) throws Exception {
        Path file = Path.of(folder, "step-" + number);
        while (!Files.exists(file)) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        return Files.readString(file);
    }
}
