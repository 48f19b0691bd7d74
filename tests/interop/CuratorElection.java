import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/**
 * Leads an election so many times, one after the other. Arguments:
 * {@code CONNECT PATH KIND ID TERMS SESSION_MS}; see {@code tests/interop/README.md}.
 */
public final class CuratorElection {
    private CuratorElection() {
    }

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[5]);
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], session, session,
                new ExponentialBackoffRetry(20, 10));
        try (client) {
            client.start();
            client.blockUntilConnected();
            int terms = Integer.parseInt(args[4]);
            if (args[2].equals("latch")) {
                for (int term = 0; term < terms; term++) {
                    try (LeaderLatch latch = new LeaderLatch(client, args[1], args[3])) {
                        latch.start();
                        latch.await();
                        lead(client, args[1]);
                    }
                }
            } else {
                select(client, args[1], args[3], terms);
            }
            System.out.println("DONE");
        }
        System.exit(0);
    }

    private static void select(CuratorFramework client, String path, String id, int terms)
            throws Exception {
        CountDownLatch left = new CountDownLatch(terms);
        LeaderSelectorListenerAdapter listener = new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework leader) throws Exception {
                if (left.getCount() > 0) {
                    lead(leader, path);
                    left.countDown();
                }
            }
        };
        try (LeaderSelector selector = new LeaderSelector(client, path, listener)) {
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
            left.await();
        }
    }

    /** Whoever leads makes this node, which must not be there. */
    private static void lead(CuratorFramework client, String path) throws Exception {
        String mark = path + "-mark";
        try {
            client.create().withMode(CreateMode.EPHEMERAL)
                    .forPath(mark, "java".getBytes(StandardCharsets.UTF_8));
            System.out.println("LEADS");
            Thread.sleep(5);
            client.delete().forPath(mark);
        } catch (KeeperException.NodeExistsException e) {
            System.out.println("OVERLAP");
        }
    }
}
