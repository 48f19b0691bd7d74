//! Service discovery with Curator's x-discovery: the JSON, to the byte; which instances each library finds; and the
//! effects of a lost connection.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lockkeeper::{
    AddWatchMode, Client, EventKind, Instance, InstanceChange, Payload, Registration,
    ServiceDirectory, ServiceType, WatchItem, ZnodePath,
};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_testkit::scratch;
use lockkeeper_wire::OpCode;
use tokio::time::timeout;

use crate::theirs::Language::Java;
use crate::theirs::{LIMIT, Place, SESSION_MS, Theirs, until};
use crate::{seed_of, time_of_a_contest};

const BASE: &str = "/services";

// ----- the JSON ------------------------------------------------------------------------------

/// Some text, with what JSON escapes and what Java has two characters for.
fn text(random: &mut fastrand::Rng) -> String {
    let letters =
        ['a', 'Z', '0', '"', '\\', '/', '\n', '\t', '\u{1}', '\u{1f}', '\u{7f}', 'é', '€', '😀'];
    (0..random.usize(0..8)).map(|_| letters[random.usize(0..letters.len())]).collect()
}

fn payload(random: &mut fastrand::Rng) -> Option<String> {
    let text = Payload::new(&text(random)).ok()?;
    Some(match random.u8(0..5) {
        0 => return None,
        1 => text.json().to_owned(),
        2 => random.i32(..).to_string(),
        3 => random.bool().to_string(),
        _ => format!(
            r#"{{"@class":"java.util.LinkedHashMap","of":{},"n":{}}}"#,
            text.json(),
            random.i32(..)
        ),
    })
}

fn any(random: &mut fastrand::Rng) -> Result<Instance> {
    let mut instance = Instance::new(text(random), text(random));
    if random.bool() {
        instance = instance.address(text(random));
    }
    instance.port = random.bool().then(|| random.u16(..));
    instance.ssl_port = random.bool().then(|| random.u16(..));
    instance.registration_time_utc = random.i64(0..4_000_000_000_000);
    instance.is_enabled = random.bool();
    let types = [
        ServiceType::Dynamic,
        ServiceType::DynamicSequential,
        ServiceType::Static,
        ServiceType::Permanent,
    ];
    instance.service_type = types[random.usize(0..types.len())];
    if let Some(json) = payload(random) {
        let payload = Payload::from_json(json).map_err(anyhow::Error::from_boxed)?;
        instance = instance.payload(payload);
    }
    if random.bool() {
        let all = "{scheme}://{address}:{port}/{id}{ssl-port}{service-type}{name}{other}{[}{]}\
                   {registration-time-utc}";
        let spec = ["", "x", "{scheme}:{ id }", all][random.usize(0..4)];
        instance = instance.uri_spec(spec.parse()?);
    }
    Ok(instance)
}

/// What we write, Curator reads; and what it writes then, we read as the same, and would write the same.
#[test]
fn the_json_is_curators_to_the_byte() -> Result<()> {
    if !peers::ready("interop: discovery's JSON", &[Peer::Curator]) {
        return Ok(());
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let instances: Result<Vec<_>> = (0..300).map(|_| any(&mut random)).collect();
    let instances = instances?;
    let lines: Vec<_> = instances.iter().map(Instance::to_json).collect();
    // Every third one says what Curator does not know, which it reads over.
    let sent = instances.iter().enumerate().map(|(index, instance)| match index % 3 {
        0 => instance.clone().weight(7).zone("b").to_json(),
        _ => instance.to_json(),
    });
    let sent: Vec<_> = sent.collect();

    let folder = scratch::folder()?;
    let file = folder.path().join("instances");
    fs::write(&file, sent.join(&b'\n'))?;
    let output = Java.program("Discovery")?.arg("rewrite").arg(&file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8(output.stdout)?;
    let written: Vec<_> = output.split('\n').collect();
    ensure!(written.len() > 2 * lines.len(), "{output}");

    let mut rest = output.as_str();
    for (instance, line) in instances.iter().zip(&lines) {
        let line = std::str::from_utf8(line)?;
        // A URI may have any letters, also those that end a line.
        let uri = instance.uri().unwrap_or_default();
        let expected = format!("{line}\n{uri}\n");
        rest = match rest.strip_prefix(&expected) {
            Some(rest) => rest,
            None => bail!("wanted {expected:?}, and Curator writes {:?}", rest.lines().next()),
        };
        let again = Instance::from_json(line.as_bytes()).map_err(anyhow::Error::from_boxed)?;
        ensure!(again == *instance, "{again:?} is not {instance:?}");
    }
    Ok(())
}

// ----- discovery across libraries --------------------------------------------------------------

const LONG_SESSION_MS: &str = "20000";

/// Starts a program of Curator's that registers an instance, and keeps it until the file `end` appears.
fn register(connect: &str, id: &str, session_ms: &str) -> Result<Theirs> {
    Theirs::start(Java, "Discovery", &["register", connect, session_ms, BASE, "web", id])
}

/// Starts one that watches the instances.
fn watch(connect: &str) -> Result<Theirs> {
    Theirs::start(Java, "Discovery", &["watch", connect, LONG_SESSION_MS, BASE, "web"])
}

/// What one that watches has printed last: the ids of all instances, and of those that it would call.
fn last_seen(watching: &Theirs) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let last = watching.said("SEES [").pop()?;
    let (seen, called) = last.strip_suffix(']')?.split_once("] CALLS [")?;
    let items = |list: &str| -> BTreeSet<String> {
        let ids = list.split(", ").filter(|item| !item.is_empty());
        ids.map(|item| item.split('@').next().unwrap_or(item).to_owned()).collect()
    };
    Some((items(seen), items(called)))
}

fn ids(directory: &ServiceDirectory) -> Vec<String> {
    directory.instances().iter().map(|listed| listed.id.clone()).collect()
}

async fn see(directory: &ServiceDirectory, wanted: &[&str]) -> Result<()> {
    let mut changes = directory.changes();
    while ids(directory) != wanted {
        let seen = timeout(LIMIT, changes.next()).await;
        seen.with_context(|| format!("{:?} and not {wanted:?}", ids(directory)))??;
    }
    Ok(())
}

#[tokio::test]
async fn we_and_curator_find_each_other() -> Result<()> {
    let Some(Place { connect, client }) = Place::with("discovery", &[Java]).await? else {
        return Ok(());
    };
    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    let mut watching = watch(&connect)?;
    let mut theirs = register(&connect, "theirs", LONG_SESSION_MS)?;

    // Theirs, as we see it.
    theirs.prints("}\n").await?;
    let json = theirs.said("REGISTERED ").pop().context("no JSON")?;
    see(&directory, &["theirs"]).await?;
    let listed = directory.instances()[0].instance().clone();
    ensure!(listed.to_json() == json.as_bytes(), "{listed:?} is not {json}");
    ensure!(listed.uri().as_deref() == Some("http://127.0.0.1:80/theirs"), "{listed:?}");
    let payload = listed.payload.context("no payload")?;
    ensure!(payload.json() == "\"theirs\"", "{}", payload.json());

    // Ours, as they see it.
    let spec = "{scheme}://{address}:{ssl-port}".parse()?;
    let ours = Instance::new("web", "ours").address("::1").ssl_port(443).uri_spec(spec);
    let said = Payload::new(&BTreeMap::from([("version", 2)]));
    let ours = ours.payload(said.map_err(anyhow::Error::from_boxed)?).weight(3).zone("b");
    let ours = Registration::start(&client, BASE, ours).await?;
    let their = "theirs@http://127.0.0.1:80/theirs=theirs";
    let our = "ours@https://::1:443={version=2}";
    let mut prints = async |line: String| watching.prints(&line).await;
    prints(format!("SEES [{our}, {their}] CALLS [ours, theirs]")).await?;
    ours.drain().await?;
    prints(format!("SEES [{our}, {their}] CALLS [theirs]")).await?;
    ours.unregister().await?;
    prints(format!("SEES [{their}] CALLS [theirs]")).await?;

    theirs.end().await?;
    see(&directory, &[]).await?;
    watching.end().await
}

// ----- kills -----------------------------------------------------------------------------------

/// Instances of both libraries start, stop, drain, are killed, and lose their sessions. After each step, all
/// clients find the present instances, and call those that do not drain.
#[tokio::test]
async fn we_and_curator_find_each_other_through_kills() -> Result<()> {
    let Some(place) = Place::with("discovery, kills", &[Java]).await? else { return Ok(()) };
    let mut random = fastrand::Rng::with_seed(seed_of("discovery"));
    let (near_us, to_us) = place.proxy().await?;
    let client = Client::connect(&to_us).await?;
    let directory = ServiceDirectory::open(&place.client, BASE, "web").await?;
    let watching = watch(&place.connect)?;

    let their = |number: u32| -> Result<(String, Theirs)> {
        let id = format!("theirs-{number}");
        let program = register(&place.connect, &id, SESSION_MS)?;
        Ok((id, program))
    };
    let our = |number: u32| Registration::start(&client, BASE, our_instance(number));
    let mut theirs = BTreeMap::from([their(1)?, their(2)?]);
    let mut ours = vec![our(1).await?];
    all_find(&directory, &watching, &theirs, &ours).await?;

    let (started, time, mut kills) = (Instant::now(), time_of_a_contest(), 0);
    for step in 3_u32.. {
        if started.elapsed() > time && kills > 0 {
            break;
        }
        match random.u8(0..6) {
            0 => {
                let victim = random.choice(theirs.keys()).context("one of them")?.clone();
                let mut victim = theirs.remove(&victim).context("it runs")?;
                victim.process.kill();
                kills += 1;
                theirs.extend([their(step)?]);
            }
            1 => near_us.expire_session().await?,
            2 if ours.len() > 1 => ours.swap_remove(0).unregister().await?,
            3 if ours.len() > 1 => drop(ours.swap_remove(0)),
            4 => {
                let one = random.choice(&ours).context("one of ours")?;
                match one.instance().await.is_enabled {
                    true => one.drain().await?,
                    false => one.undrain().await?,
                }
            }
            _ => ours.push(our(step).await?),
        }
        all_find(&directory, &watching, &theirs, &ours).await?;
    }
    println!("{kills} killed, {} theirs and {} ours at the end", theirs.len(), ours.len());
    Ok(())
}

fn our_instance(number: u32) -> Instance {
    Instance::new("web", format!("ours-{number}")).address("127.0.0.1").port(80)
}

async fn all_find(
    directory: &ServiceDirectory,
    watching: &Theirs,
    theirs: &BTreeMap<String, Theirs>,
    ours: &[Registration],
) -> Result<()> {
    let mut there: BTreeSet<String> = theirs.keys().cloned().collect();
    let mut called = there.clone();
    for registration in ours {
        let instance = registration.instance().await;
        there.insert(instance.id.clone());
        if instance.is_enabled {
            called.insert(instance.id);
        }
    }
    let we_see = || {
        let instances = directory.instances();
        let enabled = instances.iter().filter(|listed| listed.is_enabled);
        let called: BTreeSet<_> = enabled.map(|listed| listed.id.clone()).collect();
        (ids(directory).into_iter().collect::<BTreeSet<_>>(), called)
    };
    let wanted = (there, called);
    let all_see = async || Ok(we_see() == wanted && last_seen(watching).as_ref() == Some(&wanted));
    until(all_see).await.with_context(|| {
        let (we, they, tail) = (we_see(), last_seen(watching), watching.process.tail());
        format!("{wanted:?} are there; we see {we:?}, they see {they:?}: {tail}")
    })
}

// ----- a lost connection -----------------------------------------------------------------------

/// How often each of them loses its connection.
const CUTS: usize = 3;

/// Curator deletes its instances and makes them anew at every reconnect; ours stay.
#[tokio::test]
async fn a_lost_connection_flaps_their_instance_and_not_ours() -> Result<()> {
    let Some(place) = Place::with("discovery, cut off", &[Java]).await? else { return Ok(()) };
    let (near_us, to_us) = place.proxy().await?;
    let client = Client::connect(&to_us).await?;
    let ours = Registration::start(&client, BASE, Instance::new("web", "ours")).await?;
    let (near_them, to_them) = place.proxy().await?;
    let mut theirs = register(&to_them, "theirs", LONG_SESSION_MS)?;
    theirs.prints("REGISTERED").await?;

    let directory = ServiceDirectory::open(&place.client, BASE, "web").await?;
    see(&directory, &["ours", "theirs"]).await?;
    let mut changes = directory.changes();
    let service = ZnodePath::new(BASE)?.child("web")?;
    let mut events = place.client.watch(&service, AddWatchMode::PersistentRecursive).await?;
    for _ in 0..CUTS {
        near_us.cut();
        // The first may be lost with the connection.
        while client.sync(&service).await.is_err() {}
        near_them.clear();
        near_them.cut();
        // It tries to make its node, deletes it, and makes it.
        let is_create =
            |passed: &&Passed| matches!(passed, Passed::Reply(OpCode::Create | OpCode::Create2));
        let passes = near_them.passes(|passed| passed.iter().filter(is_create).count() >= 2);
        timeout(LIMIT, passes).await.context("Curator does not register again")?;
    }
    let last = Registration::start(&client, BASE, Instance::new("web", "last")).await?;

    let mut gone = Vec::new();
    loop {
        let item = timeout(LIMIT, events.next()).await.context("no event")??;
        let WatchItem::Event(event) = item else { continue };
        let name = event.path.rsplit('/').next().unwrap_or_default().to_owned();
        match event.kind {
            EventKind::NodeDeleted => gone.push(name),
            EventKind::NodeCreated if name == "last" => break,
            _ => {}
        }
    }
    let of = |who: &str| gone.iter().filter(|name| *name == who).count();
    println!(
        "{CUTS} lost connections: theirs was away {} times, ours {}",
        of("theirs"),
        of("ours")
    );
    ensure!(of("ours") == 0, "{gone:?}");
    ensure!(of("theirs") >= CUTS, "they do not flap any more: say so in the docs; {gone:?}");

    let mut told = Vec::new();
    while !told.iter().any(|change: &InstanceChange| change.node() == "last") {
        told.extend(timeout(LIMIT, changes.next()).await.context("no change")??.changes);
    }
    ensure!(!told.iter().any(|change| change.node() == "ours"), "{told:?}");
    theirs.end().await?;
    ours.unregister().await?;
    last.unregister().await?;
    Ok(())
}

/// An instance of the type `DYNAMIC_SEQUENTIAL` has one more node after each reconnect.
#[tokio::test]
async fn a_sequential_instance_of_curators_multiplies() -> Result<()> {
    let Some(place) = Place::with("discovery, sequential", &[Java]).await? else { return Ok(()) };
    let (near_them, through) = place.proxy().await?;
    let arguments = ["register-sequential", &through, LONG_SESSION_MS, BASE, "web", "theirs"];
    let mut theirs = Theirs::start(Java, "Discovery", &arguments)?;
    theirs.prints("REGISTERED").await?;

    let directory = ServiceDirectory::open(&place.client, BASE, "web").await?;
    let mut changes = directory.changes();
    let before = directory.instances().len();
    for _ in 0..CUTS {
        let wanted = directory.instances().len() + 1;
        near_them.cut();
        while directory.instances().len() < wanted {
            timeout(LIMIT, changes.next()).await.context("it does not multiply: say so")??;
        }
    }
    let instances = directory.instances();
    println!("{CUTS} lost connections: {before} nodes before, {} after", instances.len());
    ensure!(instances.iter().all(|listed| listed.id == "theirs"), "{instances:?}");
    theirs.end().await
}

/// Curator's counter becomes the least number, whose absolute value is that number again.
#[test]
fn curators_round_robin_fails_after_two_billion_picks() -> Result<()> {
    if !peers::ready("interop: discovery, round robin", &[Peer::Curator]) {
        return Ok(());
    }
    let output = Java.program("Discovery")?.arg("round-robin").output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.starts_with("PICKS b\nFAILS "), "it does not fail any more: say so; {text}");
    Ok(())
}
