import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.retry.RetryNTimes;

/**
 * Prints what Apache Curator's cache has of a tree, whenever that has changed: a line {@code NODE PATH
 * CZXID MZXID VERSION CVERSION DATA} for each node, and {@code END} behind them. Between these, a line
 * {@code TOLD KIND PATH} for each call of a listener, and {@code TOLD INITIALIZED NODES} with how many nodes
 * there are then. Arguments: {@code CONNECT PATH RETRIES}. Lives until it is killed.
 */
public final class CuratorCacheView {
    private CuratorCacheView() {
    }

    public static void main(String[] args) throws Exception {
        // Without reads of its own.
        CuratorFramework client = CuratorFrameworkFactory.builder().connectString(args[0])
                .sessionTimeoutMs(10000).connectionTimeoutMs(10000).ensembleTracker(false)
                .retryPolicy(new RetryNTimes(Integer.parseInt(args[2]), 200)).build();
        client.start();
        client.blockUntilConnected();
        CountDownLatch filled = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(client, args[1]);
        cache.listenable().addListener(CuratorCacheListener.builder()
                .forAll((kind, before, after) -> told(kind + " " + (after == null ? before : after).getPath()))
                .forInitialized(() -> {
                    told("INITIALIZED " + cache.stream().count());
                    filled.countDown();
                }).build());
        cache.start();
        filled.await();
        String last = null;
        while (true) {
            // Its listeners are not told of everything that it has.
            String now = text(cache);
            if (!now.equals(last)) {
                System.out.print(now + "END\n");
                System.out.flush();
                last = now;
            }
            Thread.sleep(50);
        }
    }

    private static void told(String what) {
        System.out.print("TOLD " + what + "\n");
        System.out.flush();
    }

    private static String text(CuratorCache cache) {
        TreeMap<String, ChildData> nodes = new TreeMap<>();
        cache.stream().forEach(node -> nodes.put(node.getPath(), node));
        StringBuilder text = new StringBuilder();
        for (ChildData node : nodes.values()) {
            text.append("NODE ").append(node.getPath());
            text.append(' ').append(node.getStat().getCzxid());
            text.append(' ').append(node.getStat().getMzxid());
            text.append(' ').append(node.getStat().getVersion());
            text.append(' ').append(node.getStat().getCversion());
            String data = new String(node.getData(), StandardCharsets.UTF_8);
            text.append(' ').append(data.replace('\n', ';')).append('\n');
        }
        return text.toString();
    }
}
