import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes a lock once with Apache Curator's {@code InterProcessMutex}, keeps it, and prints when the
 * library says what about it. See {@code tests/interop/README.md}.
 *
 * <p>Arguments: {@code CONNECT LOCK_PATH SESSION_MS}.
 */
public final class CuratorHolder {
    public static void main(String[] args) throws Exception {
        int sessionMillis = Integer.parseInt(args[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], sessionMillis,
                sessionMillis, new ExponentialBackoffRetry(50, 10));
        client.getConnectionStateListenable().addListener((which, state) -> say(state.name()));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
        acquire(mutex);
        say("HELD");
        while (mutex.isAcquiredInThisProcess()) {
            TimeUnit.MILLISECONDS.sleep(1);
        }
        say("GONE");
        Thread.sleep(Long.MAX_VALUE);
    }

    /** A waiter whose connection is lost gives up, so it tries again, as a program would. */
    private static void acquire(InterProcessMutex mutex) throws Exception {
        while (true) {
            try {
                mutex.acquire();
                return;
            } catch (Exception failed) {
                say("RETRY");
            }
        }
    }

    /** The clock of all contenders of one machine: CLOCK_MONOTONIC, in nanoseconds. */
    private static synchronized void say(String what) {
        System.out.println(System.nanoTime() + " " + what);
        System.out.flush();
    }
}
