//! `lockkeeper service`: the instances of a service.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{
    Error, ErrorCode, Instance, Instances, ListedInstance, Payload, Pick, PresenceState,
    Registration, ServiceDirectory, ZnodePath,
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::session::command_line::CommandLine;
use crate::session::connect::Connection;
use crate::session::limited::{unless_reader_closed, with_limit};
use crate::session::path_use;
use crate::session::user_command::{self, OwnEntry};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{self, print, print_to_reader, tell};
use crate::shared::{names, view};

const REGISTER_NOTES: &str = "\
When the instance is registered, one line on standard output confirms it; with --json it is one object. With a \
command, there is no such line: the output is the command's. The instance is removed when the command ends or, \
without one, on Ctrl-C, TERM, HUP or QUIT. It is marked as disabled before such a signal is forwarded to the \
command, so that it gets no new calls. If lockkeeper is killed, the instance is listed until its session expires, \
and the command keeps running.

An instance with the same --name is replaced: a restarted program takes the place of its previous process.

The znode has the format of Curator's service discovery, so its programs find the instance as well. The environment \
of the command contains LOCKKEEPER_SERVICE, the folder and the service; LOCKKEEPER_INSTANCE, the id; \
LOCKKEEPER_CONNECT, and the files of credentials and certificates under the names of their variables.

Examples:
  lockkeeper service register services/web --address 10.0.0.7 --port 80 -- ./web
  lockkeeper service register services/web --address $(hostname) --port 80 --name web1 --weight 2
  lockkeeper service register services/web --address 10.0.0.7 --port 80 --data '{\"version\":\"1.2\"}' -- ./web

Exit codes: the command's own; 0 without one; 128 + n, signal n came before it was registered; others: lockkeeper \
run --help";

const LS_NOTES: &str = "\
Instances registered by programs on Curator are listed as well. A disabled instance, or one of weight 0, gets no \
calls.

--watch prints the instances again after each change. Several quick changes may be combined. With --json there is one \
object on each line. It ends with Ctrl-C, or when the reader closes the pipe.

Examples:
  lockkeeper service ls services/web
  lockkeeper service ls services/web --json | jq -r '.instances[].address'
  lockkeeper service ls services --all           the names of the services in a folder

Exit codes: 0, even if there are no instances; others: lockkeeper run --help";

const PICK_NOTES: &str = "\
Without --key, the instance is drawn at random, by weight. With --key it is determined by rendezvous hashing: all \
programs that see the same instances get the same one for a key, and few keys move when an instance comes or goes. \
An IPv6 address is printed in brackets, with the port of the instance or else its port for TLS. An instance without \
a port is printed as the address alone.

Examples:
  curl http://$(lockkeeper service pick services/web)/
  lockkeeper service pick services/cache --key user-7
  lockkeeper service pick services/web --zone b  one of zone b, if there is one

Exit codes: 0, an instance is printed; 1, no instance takes calls; others: lockkeeper run --help";

/// A subcommand of `service`.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceTask {
    /// Be an instance of a service while a command runs, or until Ctrl-C
    #[command(after_long_help = REGISTER_NOTES)]
    Register(Box<RegisterOptions>),
    /// List the instances of a service
    #[command(after_long_help = LS_NOTES)]
    Ls {
        /// The service: FOLDER/SERVICE, such as services/web; or with --all the folder
        #[arg(value_name = "SERVICE", value_parser = names::lock)]
        path: ZnodePath,

        /// List the names of the services in a folder
        #[arg(long)]
        all: bool,

        /// List the instances again after each change, until Ctrl-C
        #[arg(long, conflicts_with = "all")]
        watch: bool,
    },
    /// Print the address of one instance, for a call
    #[command(after_long_help = PICK_NOTES)]
    Pick {
        #[command(flatten)]
        service: ServiceName,

        /// Pick the instance that is responsible for this key
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        key: Option<OsString>,

        /// Prefer the instances of this zone
        #[arg(long, value_name = "ZONE", conflicts_with = "key")]
        zone: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServiceName {
    /// The service: FOLDER/SERVICE, such as services/web
    #[arg(id = "service", value_name = "SERVICE", value_parser = service_path)]
    path: ServicePath,
}

/// A service, and the folder that it is in.
#[derive(Clone, Debug)]
struct ServicePath {
    path: ZnodePath,
    folder: ZnodePath,
}

#[derive(Debug, Args)]
pub(crate) struct RegisterOptions {
    #[command(flatten)]
    service: ServiceName,

    /// The host name or address of the instance
    #[arg(long, value_name = "HOST", value_parser = host)]
    address: String,

    /// Its port
    #[arg(long, value_name = "N")]
    port: u16,

    /// Its port for TLS
    #[arg(long, value_name = "N")]
    ssl_port: Option<u16>,

    /// The id of the instance [default: HOST:PORT]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Its share of the calls, relative to the other instances
    #[arg(long, value_name = "N", default_value_t = 1)]
    weight: u32,

    /// Its zone: programs may prefer instances of their own zone
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,

    /// Data for others to read, as JSON: its payload. Programs on Curator need an object
    #[arg(long, value_name = "JSON", value_parser = payload)]
    data: Option<Payload>,

    #[command(flatten)]
    command: CommandLine,
}

/// A registered instance as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownRegistration<'a> {
    service: &'a str,
    id: &'a str,
    node: &'a str,
}

/// The services of a folder as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ListedServices<'a> {
    folder: &'a str,
    services: BTreeSet<String>,
}

/// The instances as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ListedInstances<'a> {
    service: &'a str,
    instances: Vec<ShownInstance<'a>>,
    /// Nodes without the data of an instance, and nodes without read permission.
    unreadable: Vec<UnreadableNode<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownInstance<'a> {
    id: &'a str,
    node: &'a str,
    address: Option<&'a str>,
    port: Option<u16>,
    ssl_port: Option<u16>,
    /// As printed by `service pick`.
    endpoint: Option<String>,
    zone: Option<&'a str>,
    weight: u32,
    /// Whether it takes calls, unless its weight is 0.
    enabled: bool,
    registered_unix_ms: i64,
    payload: Option<Value>,
}

#[derive(Debug, Serialize)]
struct UnreadableNode<'a> {
    node: &'a str,
    reason: &'a str,
}

/// Parses a service: the last part of the path is the service, the rest is the folder.
fn service_path(text: &str) -> Result<ServicePath, String> {
    let path = names::lock(text).map_err(|error| error.to_string())?;
    match path.parent().filter(|folder| !folder.is_root()) {
        Some(folder) => Ok(ServicePath { path, folder }),
        None => Err("a service must be in a folder: use the form services/web".to_owned()),
    }
}

fn host(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty".to_owned()),
        _ if text.contains(char::is_control) => Err("it contains control characters".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn payload(text: &str) -> Result<Payload, String> {
    Payload::from_json(text.to_owned()).map_err(|error| error.to_string())
}

/// Registers an instance, lists the instances or picks one.
pub(crate) async fn service(global: &Global, task: ServiceTask) -> Result<u8, Failure> {
    match task {
        ServiceTask::Register(options) => register(global, *options).await,
        ServiceTask::Ls { path, all: true, .. } => services(global, &path).await,
        ServiceTask::Ls { path, watch, .. } => {
            let service = service_path(path.as_str())
                .map_err(|error| Failure::new(Exit::Usage, error).advise("or use --all"))?;
            if watch { follow(global, &service).await } else { ls(global, &service).await }
        }
        ServiceTask::Pick { service, key, zone } => pick(global, &service.path, key, zone).await,
    }
}

struct Registered {
    service: ZnodePath,
    node: ZnodePath,
    id: String,
    registration: Registration,
}

async fn register(global: &Global, options: RegisterOptions) -> Result<u8, Failure> {
    let ServiceName { path: service } = options.service;
    let id = options.name.unwrap_or_else(|| endpoint(&options.address, Some(options.port)));
    let node = service.path.child(&id).map_err(|error| {
        Failure::new(Exit::Usage, format!("{id:?} cannot be the id of an instance: {error}"))
    })?;
    let mut instance = Instance::new(service.path.name(), id.as_str())
        .address(options.address)
        .port(options.port)
        .weight(options.weight);
    (instance.ssl_port, instance.zone) = (options.ssl_port, options.zone);
    instance.payload = options.data;

    options.command.check()?;
    user_command::listed(global, &options.command.words(), async |connection| {
        path_use::check(&connection.client, &service.path, PathUse::Service).await?;
        let registration =
            Registration::start(&connection.client, service.folder.as_str(), instance)
                .await
                .map_err(|error| Failure::of_recipe(&error))?;
        Ok(Registered { service: service.path.clone(), node, id, registration })
    })
    .await
}

impl OwnEntry for Registered {
    fn node(&self) -> ZnodePath {
        self.node.clone()
    }

    fn changes(&self) -> watch::Receiver<PresenceState> {
        self.registration.changes()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let service = self.service.to_string();
        vec![("LOCKKEEPER_SERVICE", service), ("LOCKKEEPER_INSTANCE", self.id.clone())]
    }

    fn announce(&self, global: &Global) -> Result<(), Failure> {
        let (service, id, node) = (self.service.as_str(), self.id.as_str(), self.node.as_str());
        let text = format!("{id} is an instance of {service}, until Ctrl-C");
        output::announce(global, &ShownRegistration { service, id, node }, &text)
    }

    async fn drain(&self, limit: Duration) {
        // If this fails, the instance is removed soon anyway.
        let _ = self.registration.drain_timeout(limit).await;
    }

    async fn leave(self) -> Result<(), Error> {
        self.registration.unregister().await
    }
}

async fn services(global: &Global, folder: &ZnodePath) -> Result<u8, Failure> {
    let names = Connection::during(global, async |connection| {
        match connection.client.children(folder).await {
            Ok((names, _)) => Ok(names.into_iter().collect()),
            Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(BTreeSet::new()),
            Err(error) => Err(error.into()),
        }
    });
    let listed = ListedServices { folder: folder.as_str(), services: names.await? };
    output::show(global, &listed, || {
        listed.services.iter().map(|name| format!("{}\n", view::printable(name))).collect()
    })?;
    Ok(Exit::Ok.code())
}

async fn open(
    connection: &Connection,
    service: &ServicePath,
    zone: Option<String>,
) -> Result<ServiceDirectory, Failure> {
    let (folder, name) = (service.folder.as_str(), service.path.name());
    let mut options = ServiceDirectory::builder(&connection.client, folder, name);
    if let Some(zone) = zone {
        options = options.zone(zone);
    }
    options.open().await.map_err(|error| Failure::of_recipe(&error))
}

async fn ls(global: &Global, service: &ServicePath) -> Result<u8, Failure> {
    let instances = Connection::during(global, async |connection| {
        Ok(open(connection, service, None).await?.instances())
    });
    let instances = instances.await?;
    let listed = ListedInstances::new(&service.path, &instances);
    output::show(global, &listed, || listed.text())?;
    Ok(Exit::Ok.code())
}

async fn follow(global: &Global, service: &ServicePath) -> Result<u8, Failure> {
    let ended = with_limit(global, None, async |connection| {
        let directory = open(connection, service, None).await?;
        let mut changes = directory.changes();
        let mut instances = directory.instances();
        let mut last = None;
        loop {
            let listed = ListedInstances::new(&service.path, &instances);
            let value = output::json(&listed)?;
            let shown = match global.json {
                true => format!("{value}\n"),
                false => format!("{}\n{}\n", view::now(), listed.text()),
            };
            // The first change may already be part of the first output.
            let is_new = last.as_ref() != Some(&value);
            if is_new && !print_to_reader(&shown)? {
                return Ok(());
            }
            last = Some(value);
            let Some(update) = unless_reader_closed(changes.next()).await else { return Ok(()) };
            instances = update.map_err(|error| Failure::of_recipe(&error))?.instances;
        }
    });
    ended.await?.code(|()| Ok(Exit::Ok.code()))
}

async fn pick(
    global: &Global,
    service: &ServicePath,
    key: Option<OsString>,
    zone: Option<String>,
) -> Result<u8, Failure> {
    let picked = Connection::during(global, async |connection| {
        let directory = open(connection, service, zone).await?;
        let how = match &key {
            Some(key) => Pick::key(key.as_encoded_bytes()),
            None => Pick::PowerOfTwo,
        };
        // An instance without an address cannot be called.
        let mut tried: Vec<Arc<ListedInstance>> = Vec::new();
        Ok(loop {
            match directory.pick_except(&tried, how) {
                Ok(call) if call.instance().address.is_none() => {
                    tried.push(Arc::clone(call.instance()));
                }
                Ok(call) => break Ok(Arc::clone(call.instance())),
                Err(error) => break Err(error),
            }
        })
    });
    match picked.await? {
        Ok(instance) => {
            let shown = ShownInstance::new(&instance);
            match (global.json, &shown.endpoint) {
                (false, Some(endpoint)) => print(&format!("{}\n", view::printable(endpoint)))?,
                _ => output::print_json(&shown)?,
            }
            Ok(Exit::Ok.code())
        }
        Err(error) => {
            tell(&format!("{}: {error}", service.path));
            Ok(Exit::No.code())
        }
    }
}

/// The address of an instance with its port: `10.0.0.7:80`, `[::1]:80`.
fn endpoint(address: &str, port: Option<u16>) -> String {
    match port {
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address.to_owned(),
    }
}

impl<'a> ShownInstance<'a> {
    fn new(instance: &'a ListedInstance) -> Self {
        let (port, ssl_port) = (instance.port, instance.ssl_port);
        let address = instance.address.as_deref();
        let payload = instance.payload.as_ref();
        Self {
            id: &instance.id,
            node: instance.node(),
            address,
            port,
            ssl_port,
            endpoint: address.map(|address| endpoint(address, port.or(ssl_port))),
            zone: instance.zone.as_deref(),
            weight: instance.weight,
            enabled: instance.is_enabled,
            registered_unix_ms: instance.registration_time_utc,
            payload: payload.and_then(|payload| serde_json::from_str(payload.json()).ok()),
        }
    }

    fn row(&self) -> Vec<String> {
        let state = match (self.enabled, self.weight) {
            (false, _) => "disabled".to_owned(),
            (true, weight) => weight.to_string(),
        };
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        let since = u64::try_from(self.registered_unix_ms).unwrap_or_default();
        let since = if since == 0 { String::new() } else { view::ago(since) };
        let zone = self.zone.unwrap_or_default();
        vec![view::printable(self.id), view::printable(endpoint), state, view::short(zone), since]
    }
}

impl<'a> ListedInstances<'a> {
    fn new(service: &'a ZnodePath, instances: &'a Instances) -> Self {
        let unreadable = instances.unreadable().iter();
        Self {
            service: service.as_str(),
            instances: instances.iter().map(|listed| ShownInstance::new(listed)).collect(),
            unreadable: unreadable
                .map(|it| UnreadableNode { node: &it.node, reason: &it.reason })
                .collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = if self.instances.is_empty() {
            format!("{} has no instances\n", self.service)
        } else {
            let heading = ["ID", "ADDRESS", "WEIGHT", "ZONE", "SINCE"];
            let mut rows = vec![heading.map(str::to_owned).to_vec()];
            rows.extend(self.instances.iter().map(ShownInstance::row));
            view::table(&rows)
        };
        for UnreadableNode { node, reason } in &self.unreadable {
            text.push_str(&format!("{}: {}\n", view::printable(node), view::printable(reason)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_in_a_folder() {
        let read = service_path("a/services/web").unwrap();
        assert_eq!((read.folder.as_str(), read.path.name()), ("/a/services", "web"));
        for wrong in ["web", "/web", "", "/", "a//b"] {
            assert!(service_path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_and_its_port_are_distinguishable() {
        for (address, port, text) in
            [("db1", Some(80), "db1:80"), ("::1", Some(80), "[::1]:80"), ("::1", None, "::1")]
        {
            assert_eq!(endpoint(address, port), text);
        }
    }
}
