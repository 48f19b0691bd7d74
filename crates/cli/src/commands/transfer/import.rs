//! `lockkeeper import`: creates persistent znodes from a file.

use std::path::PathBuf;

use clap::Args;
use lockkeeper::{
    Acl, Client, CreateMode, Created, Error, ErrorCode, Reply, SessionId, ZnodePath, Zxid,
};
use serde::Serialize;

use super::format::Node;
use super::source::ImportSource;
use super::walk::{shows_hashes, there};
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{show, tell};
use crate::shared::view;

const NOTES: &str = "\
Missing znodes are created, parents first, with their access control lists. An existing znode that is \
equal is kept, so an interrupted import can be repeated. An existing znode that differs is reported, and \
kept unless --overwrite is set. Nothing is deleted. The whole file is checked before anything is \
written.

If not everyone may create children of a znode, its list also allows the importing user to do so until its \
children exist. That requires credentials, which can be any (--digest-file). After an interruption, repeat the \
import with --overwrite. For existing znodes, use credentials that their lists allow, or those of the super \
user.

Fencing tokens are numbers of transactions. If the numbers of these servers are not above those of the \
export, tokens would become smaller, and resources that check them would reject all new holders. The import \
then fails. docs/growing.md describes how to prepare the servers.

Exit codes: 0, done; 1, something differs and was kept, or tokens would become smaller; 64, the file cannot be \
read; 65, it is not a file of export, or is incomplete; 75, no server; 77, no permission.";

/// How many znodes are requested at once.
const AT_ONCE: usize = 32;

/// How many differing znodes are named.
const NAMED: u64 = 20;

/// Create the znodes of a file that `export` wrote
///
/// For a move to other servers: see docs/growing.md.
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct ImportOptions {
    /// The file; - for standard input
    file: PathBuf,

    /// Change existing znodes that have other data or another access control list
    #[arg(long)]
    overwrite: bool,

    /// Report what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Import even if fencing tokens become smaller: if nothing checks them
    #[arg(long)]
    tokens_may_shrink: bool,
}

/// The result as JSON. The field names are stable.
#[derive(Debug, Default, Serialize)]
struct Done {
    created: u64,
    equal: u64,
    overwritten: u64,
    /// Znodes that differ and were kept.
    left: u64,
}

/// Creates the missing znodes.
pub(crate) async fn import(global: &Global, options: ImportOptions) -> Result<u8, Failure> {
    let mut source = ImportSource::open(&options.file)?;
    let done = Connection::during(global, async |connection| {
        if let Some(path) = source.closed()
            && !connection.access.shows_credentials()
        {
            let message = format!(
                "not everyone may create znodes below {path}, and no credentials are configured"
            );
            return Err(Failure::new(Exit::NoPermission, message)
                .advise("set any credentials to import it (--digest-file)"));
        }

        compare_tokens(&connection.client, &source, &options).await?;

        let mut import = Import { client: &connection.client, options: &options, late: Vec::new() };
        import.all(&mut source).await
    });
    let done = done.await?;
    show(global, &done, || describe(&done, &options))?;
    Ok(if done.left > 0 { Exit::No.code() } else { Exit::Ok.code() })
}

/// Checks that new tokens are greater than all tokens of the old servers.
async fn compare_tokens(
    client: &Client,
    source: &ImportSource,
    options: &ImportOptions,
) -> Result<(), Failure> {
    client.sync(&ZnodePath::root()).await?;
    let (here, there) = (client.last_zxid(), source.last_zxid()?);
    if here > there {
        return Ok(());
    }

    let message = format!(
        "fencing tokens would become smaller: these servers are at zxid {here}, the old ones were at \
         {there} (epoch {})",
        there.epoch()
    );
    if options.tokens_may_shrink {
        tell(&message);
        return Ok(());
    }

    let advice = way_up(there);
    Err(Failure::new(Exit::No, message).advise(&advice))
}

fn way_up(old: Zxid) -> String {
    format!(
        "start with new servers at epoch {} or more (acceptedEpoch of ZooKeeper, lockkeeper engine \
         floor; docs/growing.md), or use --tokens-may-shrink",
        old.epoch().saturating_add(1)
    )
}

fn describe(done: &Done, options: &ImportOptions) -> String {
    let would = if options.dry_run { "would be " } else { "" };
    let mut parts = vec![format!("{} {would}created", done.created)];
    parts.push(format!("{} already existed", done.equal));
    if done.overwritten > 0 {
        parts.push(format!("{} {would}overwritten", done.overwritten));
    }
    if done.left > 0 {
        parts.push(format!("{} with differences {would}kept (--overwrite)", done.left));
    }
    format!("{}\n", parts.join(", "))
}

struct Import<'a> {
    client: &'a Client,
    options: &'a ImportOptions,
    /// Lists to set after the children exist.
    late: Vec<(ZnodePath, Vec<Acl>)>,
}

/// The state on the servers of a znode of the file.
#[derive(Clone, Copy)]
enum FoundNode {
    Missing,
    Equal,
    Different(&'static str),
    /// A session has a znode with this path.
    InUse,
}

impl Import<'_> {
    async fn all(&mut self, source: &mut ImportSource) -> Result<Done, Failure> {
        let name = source.name().to_owned();
        self.make_above(source.root()).await?;

        let mut done = Done::default();
        let mut nodes = source.nodes()?.peekable();
        while nodes.peek().is_some() {
            let some: Vec<_> = nodes.by_ref().take(AT_ONCE).collect::<Result<_, _>>()?;
            // All requests are sent before the first reply: servers create the znodes in this order.
            let some: Vec<_> = some.into_iter().map(|node| (self.create(&node.1), node)).collect();
            for (reply, (line, node)) in some {
                let settled = self.settle(reply, &node, &mut done).await;
                let place = format!("{name}: line {line}: {}", view::printable(node.path.as_str()));
                settled.map_err(|failure| failure.about(&place))?;
            }
        }

        for (path, acl) in std::mem::take(&mut self.late) {
            let set = self.client.set_acl(&path, acl, None).await;
            set.map_err(|error| refused(error).about(path.as_str()))?;
        }
        Ok(done)
    }

    /// Creates the ancestors of the exported path, which the file does not describe.
    async fn make_above(&self, root: &ZnodePath) -> Result<(), Failure> {
        if self.options.dry_run {
            return Ok(());
        }
        match root.parent() {
            Some(above) if self.client.exists(&above).await?.is_none() => {
                Ok(self.client.ensure(&above, CreateMode::Persistent).await?)
            }
            _ => Ok(()),
        }
    }

    /// Sends the request that creates a znode, unless this is a dry run. The root always exists.
    fn create(&self, node: &Node) -> Option<Reply<Created>> {
        if self.options.dry_run || node.path.below(self.client.chroot()).is_root() {
            return None;
        }
        let (data, acl) = (node.data.clone(), self.list_at_first(node));
        Some(self.client.create_with_acl(&node.path, data, CreateMode::Persistent, acl))
    }

    /// The list of a znode while its children do not exist yet.
    fn list_at_first(&self, node: &Node) -> Vec<Acl> {
        match node.is_closed() {
            true => [node.acl.clone(), Acl::creator_all()].concat(),
            false => node.acl.clone(),
        }
    }

    /// Makes a znode equal to the file, if that is allowed.
    async fn settle(
        &mut self,
        reply: Option<Reply<Created>>,
        node: &Node,
        done: &mut Done,
    ) -> Result<(), Failure> {
        let mut denied = None;
        if let Some(reply) = reply {
            match reply.await {
                Ok(_) => {
                    self.close_late(node);
                    done.created += 1;
                    return Ok(());
                }
                Err(error) if error.code() == Some(ErrorCode::NodeExists) => {}
                // Servers check permissions first, even if the znode already exists.
                Err(error) if error.code() == Some(ErrorCode::NoAuth) => denied = Some(error),
                Err(error) => return Err(refused(error)),
            }
        }

        match (self.find(node).await?, denied) {
            (FoundNode::Equal, _) => done.equal += 1,
            (_, Some(error)) => return Err(refused(error)),
            (found, None) => self.settle_existing(found, node, done).await?,
        }
        Ok(())
    }

    async fn settle_existing(
        &mut self,
        found: FoundNode,
        node: &Node,
        done: &mut Done,
    ) -> Result<(), Failure> {
        match found {
            FoundNode::Equal => done.equal += 1,
            FoundNode::Missing if self.options.dry_run => done.created += 1,
            FoundNode::Missing => {
                return Err(Failure::new(Exit::No, "it was deleted during the import"));
            }
            FoundNode::Different(what) if self.options.overwrite => {
                self.overwrite(node).await?;
                done.overwritten += 1;
                tell(&format!("{}: {what}", view::printable(node.path.as_str())));
            }
            FoundNode::Different(what) => done.leave(node, what),
            FoundNode::InUse => {
                done.leave(node, "it belongs to a session: these servers are in use")
            }
        }
        Ok(())
    }

    async fn find(&self, node: &Node) -> Result<FoundNode, Failure> {
        let (data, acl) = (self.client.data(&node.path), self.client.acl(&node.path));
        let answers = (data.await, acl.await);
        let (Some((data, stat)), Some((acl, _))) =
            (there(answers.0, &node.path)?, there(answers.1, &node.path)?)
        else {
            return Ok(FoundNode::Missing);
        };

        let same_list = match shows_hashes(&acl) {
            true => sorted(&acl) == sorted(&node.acl),
            false => sorted(&without_hashes(&acl)) == sorted(&without_hashes(&node.acl)),
        };

        Ok(match (data == node.data, same_list) {
            _ if stat.ephemeral_owner != SessionId::NONE => FoundNode::InUse,
            (true, true) => FoundNode::Equal,
            (false, true) => FoundNode::Different("other data"),
            (true, false) => FoundNode::Different("another access control list"),
            (false, false) => FoundNode::Different("other data and another access control list"),
        })
    }

    async fn overwrite(&mut self, node: &Node) -> Result<(), Failure> {
        if self.options.dry_run {
            return Ok(());
        }
        let data = self.client.set_data(&node.path, node.data.clone(), None);
        let acl = self.client.set_acl(&node.path, self.list_at_first(node), None);
        let answers = (data.await, acl.await);
        answers.0.and(answers.1).map_err(refused)?;
        self.close_late(node);
        Ok(())
    }

    fn close_late(&mut self, node: &Node) {
        if node.is_closed() {
            self.late.push((node.path.clone(), node.acl.clone()));
        }
    }
}

impl Done {
    fn leave(&mut self, node: &Node, what: &str) {
        self.left += 1;
        match self.left {
            ..=NAMED => tell(&format!("{}: {what}; kept", view::printable(node.path.as_str()))),
            count if count == NAMED + 1 => tell("more znodes differ and are kept"),
            _ => {}
        }
    }
}

/// In a fixed order.
fn sorted(acl: &[Acl]) -> Vec<(&str, &str, i32)> {
    let mut entries: Vec<_> = acl
        .iter()
        .map(|entry| (entry.scheme.as_str(), entry.id.as_str(), entry.permissions.0))
        .collect();
    entries.sort_unstable();
    entries
}

/// The list as servers show it to a client that may not change it.
fn without_hashes(acl: &[Acl]) -> Vec<Acl> {
    let hide = |entry: &Acl| match entry.id.split_once(':') {
        Some((user, _)) if entry.scheme == "digest" => {
            Acl { id: format!("{user}:x"), ..entry.clone() }
        }
        _ => entry.clone(),
    };
    acl.iter().map(hide).collect()
}

fn refused(error: Error) -> Failure {
    let code = error.code();
    let failure = Failure::from(error);
    match code {
        Some(ErrorCode::NoAuth) => failure.advise(
            "for new znodes, the access control list of the parent applies; the super user has all permissions",
        ),
        Some(ErrorCode::InvalidAcl) => failure.advise(
            "these servers do not know a scheme of its list, or no credentials are configured \
             (--digest-file)",
        ),
        Some(ErrorCode::NoNode) => failure.advise("create its parent first"),
        _ => failure,
    }
}
