//! `lockkeeper members`: the members of a group, which see each other.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{Error, Group, GroupView, Member, Members, Membership, PresenceState, ZnodePath};
use serde::Serialize;
use tokio::sync::watch;

use crate::session::command_line::CommandLine;
use crate::session::connect::Connection;
use crate::session::limited::{Limit, LimitedOutcome, unless_reader_closed, with_limit};
use crate::session::path_use;
use crate::session::user_command::{self, OwnEntry};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{self, print_to_reader, tell};
use crate::shared::{content, names, user, view};

const JOIN_NOTES: &str = "\
When the member has joined, one line on standard output confirms it; with --json it is one object. With a command, \
there is no such line: the output is the command's. The member leaves when the command ends or, without one, on \
Ctrl-C, TERM, HUP or QUIT. Signals are forwarded to the command. If lockkeeper is killed, the member is listed until \
its session expires, and the command keeps running.

If another program has the name, this command waits for it. After a lost session the member joins again, and the \
command keeps running in between: use lockkeeper run or elect for work that only one program may do.

The environment of the command contains LOCKKEEPER_GROUP; LOCKKEEPER_MEMBER, the name; LOCKKEEPER_CONNECT, and the \
files of credentials and certificates under the names of their variables.

Examples:
  lockkeeper members join workers -- ./worker
  lockkeeper members join workers --name web1 --data 10.0.0.7:80
  lockkeeper members join workers --json > joined &

Exit codes: the command's own; 0 without one; 128 + n, signal n came before the member had joined; others: lockkeeper \
run --help";

const LS_NOTES: &str = "\
SINCE is by the clock of the servers. Members of groups of Curator's GroupMember are listed as well.

--watch prints the members again after each change. Several quick changes may be combined. With --json there is one \
object on each line. It ends with Ctrl-C, or when the reader closes the pipe.

Examples:
  lockkeeper members ls workers
  lockkeeper members ls workers --json | jq -r '.members[].data'
  lockkeeper members ls workers --watch

Exit codes: 0, even if there are no members; others: lockkeeper run --help";

const WAIT_NOTES: &str = "\
Some of the members may have left when this command returns.

Examples:
  lockkeeper members wait workers 3 && ./start
  lockkeeper members wait workers 3 -w 1m
  lockkeeper members wait workers 1 -n           only check

Exit codes: 0, there are at least N members; 1, not in time; others: lockkeeper run --help";

/// A subcommand of `members`.
#[derive(Debug, Subcommand)]
pub(crate) enum MembersTask {
    /// Be a member while a command runs, or until Ctrl-C
    #[command(after_long_help = JOIN_NOTES)]
    Join(JoinOptions),
    /// List the members
    #[command(after_long_help = LS_NOTES)]
    Ls {
        #[command(flatten)]
        group: GroupName,

        /// List the members again after each change, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Wait until there are at least N members
    #[command(after_long_help = WAIT_NOTES)]
    Wait {
        #[command(flatten)]
        group: GroupName,

        /// The number of members
        #[arg(value_name = "N", value_parser = names::nonzero)]
        number: usize,

        #[command(flatten)]
        limit: Limit,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GroupName {
    /// The group, such as workers
    #[arg(id = "group", value_name = "GROUP", value_parser = names::lock)]
    name: ZnodePath,
}

#[derive(Debug, Args)]
pub(crate) struct JoinOptions {
    #[command(flatten)]
    group: GroupName,

    /// The name of the member [default: HOST-PROCESS]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Data for others to read, such as an address
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    data: Option<OsString>,

    #[command(flatten)]
    command: CommandLine,
}

/// A member that has joined, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownMembership<'a> {
    group: &'a str,
    member: &'a str,
    node: &'a str,
    /// A string: a token may contain more than a number, and may exceed the integers that JSON readers keep exactly.
    token: Option<String>,
}

/// The members as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ListedMembers<'a> {
    group: &'a str,
    /// Different after each change of the members; a string.
    view: String,
    members: Vec<ListedMember<'a>>,
    /// Nodes in the group that are not members.
    foreign: Vec<String>,
    /// Nodes without read permission.
    unreadable: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ListedMember<'a> {
    member: &'a str,
    since_unix_ms: u64,
    /// `null` if it is not UTF-8.
    data: Option<&'a str>,
    /// In base64, if it is not UTF-8.
    base64: Option<String>,
    node: &'a str,
    token: String,
    session: String,
}

/// Joins a group, lists its members or waits for them.
pub(crate) async fn members(global: &Global, task: MembersTask) -> Result<u8, Failure> {
    match task {
        MembersTask::Join(options) => join(global, options).await,
        MembersTask::Ls { group, watch: true } => watch(global, &group.name).await,
        MembersTask::Ls { group, watch: false } => ls(global, &group.name).await,
        MembersTask::Wait { group, number, limit } => {
            wait(global, &group.name, number, limit).await
        }
    }
}

fn failed(error: lockkeeper::GroupError) -> Failure {
    Failure::of_recipe(&error)
}

async fn open(connection: &Connection, name: &ZnodePath) -> Result<Members, Failure> {
    let group = Group::new(&connection.client, name.as_str()).map_err(failed)?;
    group.watch().await.map_err(failed)
}

struct Joined {
    group: ZnodePath,
    membership: Membership,
}

async fn join(global: &Global, options: JoinOptions) -> Result<u8, Failure> {
    let JoinOptions { group: GroupName { name: path }, name, data, command } = options;
    let id = name.unwrap_or_else(user::host_and_process);
    let data = data.map(OsString::into_vec).unwrap_or_default();
    command.check()?;
    user_command::listed(global, &command.words(), async |connection| {
        path_use::check(&connection.client, &path, PathUse::Group).await?;
        let group = Group::new(&connection.client, path.as_str()).map_err(failed)?;
        let membership = group.join(id, data).await.map_err(failed)?;
        Ok(Joined { group: path.clone(), membership })
    })
    .await
}

impl OwnEntry for Joined {
    fn node(&self) -> ZnodePath {
        self.membership.node().clone()
    }

    fn changes(&self) -> watch::Receiver<PresenceState> {
        self.membership.changes()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let member = self.membership.id().to_owned();
        vec![("LOCKKEEPER_GROUP", self.group.to_string()), ("LOCKKEEPER_MEMBER", member)]
    }

    fn announce(&self, global: &Global) -> Result<(), Failure> {
        let (group, member) = (self.group.as_str(), self.membership.id());
        let shown = ShownMembership {
            group,
            member,
            node: self.membership.node().as_str(),
            token: self.membership.token().map(|token| token.to_string()),
        };
        let text = format!("{member} is a member of {group}, until Ctrl-C");
        output::announce(global, &shown, &text)
    }

    async fn leave(self) -> Result<(), Error> {
        self.membership.leave().await
    }
}

async fn ls(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let view =
        Connection::during(global, async |connection| Ok(open(connection, name).await?.view()));
    let view = view.await?;
    let members: Vec<_> = view.members().collect();
    let listed = ListedMembers::new(name, &view, &members);
    output::show(global, &listed, || text(name, &members, &listed))?;
    Ok(Exit::Ok.code())
}

async fn watch(global: &Global, name: &ZnodePath) -> Result<u8, Failure> {
    let ended = with_limit(global, None, async |connection| {
        let mut changes = open(connection, name).await?.changes();
        let mut view = changes.view();
        loop {
            let members: Vec<_> = view.members().collect();
            let listed = ListedMembers::new(name, &view, &members);
            let shown = match global.json {
                true => format!("{}\n", output::json(&listed)?),
                false => format!("{}\n{}\n", view::now(), text(name, &members, &listed)),
            };
            if !print_to_reader(&shown)? {
                return Ok(());
            }
            let Some(update) = unless_reader_closed(changes.next()).await else { return Ok(()) };
            view = update.map_err(failed)?.view;
        }
    });
    ended.await?.code(|()| Ok(Exit::Ok.code()))
}

async fn wait(
    global: &Global,
    name: &ZnodePath,
    number: usize,
    limit: Limit,
) -> Result<u8, Failure> {
    let seen = OnceCell::new();
    let ended = match limit.is_none() {
        true => {
            let members = Connection::during(global, async |it| open(it, name).await).await?;
            let is_enough = seen.get_or_init(|| members).view().len() >= number;
            if is_enough { LimitedOutcome::Done(()) } else { LimitedOutcome::TimeUp }
        }
        false => {
            let ended = with_limit(global, limit.time, async |connection| {
                let members = open(connection, name).await?;
                seen.get_or_init(|| members).wait_for(number).await.map(drop).map_err(failed)
            });
            ended.await?
        }
    };
    if let LimitedOutcome::TimeUp = ended {
        tell(&match seen.get() {
            Some(members) => format!("{name} has {} of {number} members", members.view().len()),
            None => format!("{name} did not have {number} members in time"),
        });
    }
    ended.code(|()| Ok(Exit::Ok.code()))
}

fn text(name: &ZnodePath, members: &[Member], listed: &ListedMembers<'_>) -> String {
    let mut text = if members.is_empty() {
        format!("{name} has no members\n")
    } else {
        let mut rows = vec![["NAME", "SINCE", "DATA"].map(str::to_owned).to_vec()];
        rows.extend(members.iter().map(|member| {
            let since = view::ago(member.since_unix_ms);
            vec![view::printable(&member.id), since, view::value(&member.data)]
        }));
        view::table(&rows)
    };
    for (nodes, what) in
        [(&listed.foreign, "not a member"), (&listed.unreadable, "permission denied")]
    {
        for node in nodes {
            text.push_str(&format!("{}: {what}\n", view::printable(node)));
        }
    }
    text
}

impl<'a> ListedMembers<'a> {
    fn new(group: &'a ZnodePath, view: &GroupView, members: &'a [Member]) -> Self {
        let names = |nodes: Vec<ZnodePath>| nodes.iter().map(ToString::to_string).collect();
        Self {
            group: group.as_str(),
            view: view.id().to_string(),
            members: members.iter().map(ListedMember::new).collect(),
            foreign: names(view.foreign()),
            unreadable: names(view.unreadable()),
        }
    }
}

impl<'a> ListedMember<'a> {
    fn new(member: &'a Member) -> Self {
        let data = content::text(&member.data);
        Self {
            member: &member.id,
            since_unix_ms: member.since_unix_ms,
            data,
            base64: data.is_none().then(|| content::base64(&member.data)),
            node: member.node.as_str(),
            token: member.token.to_string(),
            session: member.session.to_string(),
        }
    }
}
