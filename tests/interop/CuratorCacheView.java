import java.nio.charset.StandardCharsets;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Prints what Apache Curator's cache has of a tree, whenever that has changed: a line {@code NODE PATH
 * CZXID MZXID VERSION CVERSION DATA} for each node, and {@code END} behind them. Arguments: {@code
 * CONNECT PATH}. Lives until it is killed.
 */
public final class CuratorCacheView {
    private CuratorCacheView() {
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000,
                new ExponentialBackoffRetry(20, 10));
        client.start();
        client.blockUntilConnected();
        CountDownLatch filled = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(client, args[1]);
        cache.listenable().addListener(
                CuratorCacheListener.builder().forInitialized(filled::countDown).build());
        cache.start();
        filled.await();
        String last = "";
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
