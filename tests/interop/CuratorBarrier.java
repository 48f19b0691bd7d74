import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.retry.RetryNTimes;

/**
 * Does with Apache Curator's barriers what it is told, step by step. Arguments:
 * {@code CONNECT SESSION_MS PATH PARTIES}; see {@code tests/interop/README.md}.
 */
public final class CuratorBarrier {
    private final CuratorFramework client;
    private final String path;
    private final int parties;
    private final DistributedBarrier barrier;
    private DistributedDoubleBarrier entered;

    private CuratorBarrier(CuratorFramework client, String path, int parties) {
        this.client = client;
        this.path = path;
        this.parties = parties;
        this.barrier = new DistributedBarrier(client, path);
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], Integer.parseInt(args[1]), 10000,
                new RetryNTimes(1000, 20));
        try (client) {
            client.start();
            client.blockUntilConnected();
            CuratorBarrier own = new CuratorBarrier(client, args[2], Integer.parseInt(args[3]));
            String step;
            for (int number = 0; !(step = await(number)).equals("end"); number++) {
                String came;
                try {
                    came = String.valueOf(own.take(step.split(" ")));
                } catch (Exception failed) {
                    came = failed.getClass().getSimpleName();
                }
                System.out.println("DONE " + came);
            }
        }
        System.exit(0);
    }

    /** A party has an object of its own each time, as it can be used once. */
    private boolean take(String[] step) throws Exception {
        long millis = step.length > 1 ? Long.parseLong(step[1]) : -1;
        TimeUnit unit = millis < 0 ? null : TimeUnit.MILLISECONDS;
        switch (step[0]) {
            case "close":
                barrier.setBarrier();
                return true;
            case "open":
                barrier.removeBarrier();
                return true;
            case "wait":
                return barrier.waitOnBarrier(millis, unit);
            case "enter":
                entered = new DistributedDoubleBarrier(client, path, parties);
                return entered.enter(millis, unit);
            case "leave":
                return entered.leave(millis, unit);
            default:
                throw new IllegalArgumentException(step[0]);
        }
    }

    /** The next step, from a file that appears when it is to be taken. */
    private static String await(int number) throws Exception {
        Path file = Path.of("step-" + number);
        while (!Files.exists(file)) {
            TimeUnit.MILLISECONDS.sleep(5);
        }
        return Files.readString(file);
    }
}
