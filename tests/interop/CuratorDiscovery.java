import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.curator.x.discovery.details.JsonInstanceSerializer;
import org.apache.curator.x.discovery.strategies.RoundRobinStrategy;

/**
 * Instances of a service as Curator's x-discovery has them. Arguments: see
 * {@code tests/interop/README.md}.
 */
public final class CuratorDiscovery {
    private static final Path END = Path.of("end");

    private CuratorDiscovery() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("rewrite")) {
            rewrite(Path.of(args[1]));
            return;
        }
        if (args[0].equals("round-robin")) {
            roundRobin();
            return;
        }
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[1],
                Integer.parseInt(args[2]), 10000, new ExponentialBackoffRetry(20, 10));
        try (client) {
            client.start();
            client.blockUntilConnected();
            if (args[0].equals("register")) {
                register(client, ServiceType.DYNAMIC, args[3], args[4], args[5]);
            } else if (args[0].equals("register-sequential")) {
                register(client, ServiceType.DYNAMIC_SEQUENTIAL, args[3], args[4], args[5]);
            } else {
                watch(client, args[3], args[4]);
            }
        }
        System.exit(0);
    }

    /** Reads each line as an instance, and writes it again. */
    private static void rewrite(Path lines) throws Exception {
        JsonInstanceSerializer<Object> usual = new JsonInstanceSerializer<>(Object.class);
        JsonInstanceSerializer<Object> other = new JsonInstanceSerializer<>(Object.class, false);
        for (String line : Files.readAllLines(lines)) {
            byte[] json = line.getBytes(StandardCharsets.UTF_8);
            ServiceInstance<Object> instance = usual.deserialize(json);
            JsonInstanceSerializer<Object> writer = instance.isEnabled() ? usual : other;
            System.out.write(writer.serialize(instance));
            System.out.println("\n" + instance.buildUriSpec());
        }
        System.out.flush();
    }

    /** Registers an instance until there is the file {@code end}. */
    private static void register(CuratorFramework client, ServiceType type, String base,
            String service, String id) throws Exception {
        ServiceInstance<String> instance = ServiceInstance.<String>builder().name(service).id(id)
                .address("127.0.0.1").port(80).payload("theirs").serviceType(type)
                .uriSpec(new UriSpec("{scheme}://{address}:{port}/{id}")).build();
        try (ServiceDiscovery<String> discovery = ServiceDiscoveryBuilder.builder(String.class)
                .client(client).basePath(base).thisInstance(instance).build()) {
            discovery.start();
            System.out.println("REGISTERED "
                    + new String(new JsonInstanceSerializer<>(String.class).serialize(instance),
                            StandardCharsets.UTF_8));
            while (!Files.exists(END)) {
                Thread.sleep(10);
            }
        }
    }

    /** Picks in turn, when 2^31 picks are behind it. */
    private static void roundRobin() throws Exception {
        List<ServiceInstance<String>> instances = new ArrayList<>();
        for (String id : List.of("a", "b", "c")) {
            instances.add(ServiceInstance.<String>builder().name("web").id(id).build());
        }
        RoundRobinStrategy<String> strategy = new RoundRobinStrategy<>();
        Field index = RoundRobinStrategy.class.getDeclaredField("index");
        index.setAccessible(true);
        ((AtomicInteger) index.get(strategy)).set(Integer.MAX_VALUE);
        for (int pick = 0; pick < 2; pick++) {
            try {
                System.out.println("PICKS " + strategy.getInstance(() -> instances).getId());
            } catch (IndexOutOfBoundsException e) {
                System.out.println("FAILS " + e.getMessage());
            }
        }
    }

    /** Prints the instances that it is told, and those that it would call, with every change. */
    private static void watch(CuratorFramework client, String base, String service)
            throws Exception {
        try (ServiceDiscovery<Object> discovery = ServiceDiscoveryBuilder.builder(Object.class)
                .client(client).basePath(base).build();
                ServiceProvider<Object> provider =
                        discovery.serviceProviderBuilder().serviceName(service).build()) {
            discovery.start();
            provider.start();
            String last = "";
            while (!Files.exists(END)) {
                // Its list is of all of them, also those that it does not call.
                Collection<ServiceInstance<Object>> all = discovery.queryForInstances(service);
                TreeSet<String> seen = new TreeSet<>();
                all.forEach(instance -> seen.add(instance.getId() + "@" + instance.buildUriSpec()
                        + "=" + instance.getPayload()));
                TreeSet<String> called = new TreeSet<>();
                for (ServiceInstance<Object> instance : provider.getAllInstances()) {
                    called.add(instance.getId());
                }
                String now = "SEES " + seen + " CALLS " + called;
                if (!now.equals(last)) {
                    System.out.println(now);
                    last = now;
                }
                Thread.sleep(10);
            }
        }
    }
}
