import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Revocation by Apache Curator, from either side: {@code hold CONNECT LOCK_PATH} takes a lock and
 * gives it back when somebody asks for it; {@code ask CONNECT NODE_PATH} asks the holder whose node
 * that is.
 */
public final class CuratorRevoker {
    private static final int SESSION_MILLIS = 10_000;

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[1], SESSION_MILLIS,
                SESSION_MILLIS, new ExponentialBackoffRetry(50, 10));
        try (client) {
            client.start();
            client.blockUntilConnected();
            if (args[0].equals("hold")) {
                hold(client, args[2]);
            } else {
                Revoker.attemptRevoke(client, args[2]);
                System.out.println("ASKED");
            }
        }
        System.exit(0);
    }

    /** The thread that acquired must release, and the listener runs on another one. */
    private static void hold(CuratorFramework client, String path) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        mutex.makeRevocable(lock -> asked.countDown());
        mutex.acquire();
        System.out.println("HELD");
        asked.await();
        System.out.println("ASKED");
        mutex.release();
        System.out.println("RELEASED");
    }
}
