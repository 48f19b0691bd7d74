import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Leads once by Apache Curator's {@code LeaderLatch}, stays leader, and prints when the latch says
 * what about it. See {@code tests/interop/README.md}.
 *
 * <p>Arguments: {@code CONNECT ELECTION_PATH SESSION_MS}.
 */
public final class CuratorLeader {
    public static void main(String[] args) throws Exception {
        int sessionMillis = Integer.parseInt(args[2]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], sessionMillis,
                sessionMillis, new ExponentialBackoffRetry(50, 10));
        client.getConnectionStateListenable().addListener((which, state) -> say(state.name()));
        client.start();
        client.blockUntilConnected();

        LeaderLatch latch = new LeaderLatch(client, args[1], "latch");
        CountDownLatch deposed = new CountDownLatch(1);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                say("HELD");
            }

            @Override
            public void notLeader() {
                say("GONE");
                deposed.countDown();
            }
        });
        latch.start();

        // Whoever was deposed does not come back: the experiment is about one change of leader.
        deposed.await();
        latch.close();
        Thread.sleep(Long.MAX_VALUE);
    }

    /** The clock of all contenders of one machine: CLOCK_MONOTONIC, in nanoseconds. */
    private static synchronized void say(String what) {
        System.out.println(System.nanoTime() + " " + what);
        System.out.flush();
    }
}
