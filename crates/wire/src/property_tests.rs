//! Every message survives a round trip, and arbitrary bytes never do harm.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

use crate::codec::encoded;
use crate::*;

/// A value that proptest can generate.
trait Sample: Clone + std::fmt::Debug + Sized + 'static {
    fn sample() -> BoxedStrategy<Self>;
}

macro_rules! samples {
    ($($type:ty: $strategy:expr;)*) => {
        $( impl Sample for $type {
            fn sample() -> BoxedStrategy<Self> {
                $strategy.boxed()
            }
        } )*
    };
}

samples! {
    i32: any::<i32>();
    i64: any::<i64>();
    bool: any::<bool>();
    String: vec(any::<char>(), 0..12).prop_map(String::from_iter);
    Bytes: vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    Zxid: any::<i64>().prop_map(Zxid);
    SessionId: any::<i64>().prop_map(SessionId);
    Permissions: any::<i32>().prop_map(Permissions);
    NodeData: prop_oneof![Just(NodeData::NULL), Bytes::sample().prop_map(NodeData::from)];
    AclList: Vec::<Acl>::sample().prop_map(AclList::from);
    ErrorCode: (i32::MIN..0).prop_filter_map("0 means success", ErrorCode::from_code);
    EventKind: prop_oneof![Just(-1), 1..8].prop_map(|kind| EventKind::from_code(kind).unwrap());
    KeeperState: prop_oneof![Just(0), 3..8, Just(-112)]
        .prop_map(|state| KeeperState::from_code(state).unwrap());
}

impl<T: Sample> Sample for Vec<T> {
    fn sample() -> BoxedStrategy<Self> {
        vec(T::sample(), 0..4).boxed()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample() -> BoxedStrategy<Self> {
        proptest::option::of(T::sample()).boxed()
    }
}

/// Generates a struct, or a variant of an enum, from its named fields.
macro_rules! any_of {
    (@field $field:ident) => { Sample::sample() };
    ($($name:ident)::+) => { Just($($name)::+).boxed() };
    ($($name:ident)::+ (_)) => { Sample::sample().prop_map($($name)::+).boxed() };
    ($($name:ident)::+ { $($field:ident),* }) => {
        ($(any_of!(@field $field),)*)
            .prop_map(|($($field,)*)| $($name)::+ { $($field),* })
            .boxed()
    };
}

macro_rules! structs {
    ($($name:ident $fields:tt)*) => {
        samples! { $( $name: any_of!($name $fields); )* }
    };
}

macro_rules! enums {
    ($($name:ident: $($variant:ident $(($any:tt))? $({ $($field:ident),* })?),*;)*) => {
        samples! { $(
            $name: Union::new([$(
                any_of!($name::$variant $(($any))? $({ $($field),* })?)
            ),*]);
        )* }
    };
}

structs! {
    Acl { permissions, scheme, id }
    Stat {
        czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral_owner, data_length,
        num_children, pzxid
    }
    ConnectRequest {
        protocol_version, last_zxid_seen, timeout_ms, session_id, password, read_only
    }
    ConnectResponse { protocol_version, timeout_ms, session_id, password, read_only }
    ReplyHeader { xid, zxid, error }
    WatchEvent { kind, state, path }
    ClientInfo { scheme, user }
    CreateRequest { path, data, acl, flags }
    CreateTtlRequest { path, data, acl, flags, ttl_ms }
    DeleteRequest { path, version }
    PathRequest { path }
    PathWatchRequest { path, watch }
    SetDataRequest { path, data, version }
    SetAclRequest { path, acl, version }
    CheckRequest { path, version }
    AuthRequest { kind, scheme, auth }
    SaslRequest { token }
    SetWatchesRequest { relative_zxid, data, exist, child, persistent, persistent_recursive }
    AddWatchRequest { path, mode }
    RemoveWatchesRequest { path, kind }
    ReconfigRequest { joining, leaving, new_members, config_id }
}

enums! {
    Op: Create(_), Create2(_), CreateContainer(_), CreateTtl(_), Delete(_), SetData(_), Check(_);
    ReadOp: GetData(_), GetChildren(_);
    OpResult: Create { path }, Create2 { path, stat }, Delete, SetData(_), Check, Error(_);
    ReadResult: Data { data, stat }, Children(_), Error(_);
    Request:
        Create(_), Create2(_), CreateContainer(_), CreateTtl(_), Delete(_), SetData(_), Check(_),
        SetAcl(_), Multi(_), Exists(_), GetData(_), GetChildren(_), GetChildren2(_), GetAcl(_),
        Sync(_), GetEphemerals(_), GetAllChildrenNumber(_), MultiRead(_), Ping, WhoAmI,
        CloseSession, Auth(_), Sasl(_), SetWatches(_), SetWatches2(_), AddWatch(_),
        RemoveWatches(_), CheckWatches(_), Reconfig(_);
}

/// Any request as a server receives it: `setWatches` omits some lists.
fn request() -> impl Strategy<Value = Request> {
    Request::sample().prop_map(|mut request| {
        if let Request::SetWatches(lists) = &mut request {
            lists.persistent.clear();
            lists.persistent_recursive.clear();
        }
        request
    })
}

fn response() -> impl Strategy<Value = (OpCode, Response)> {
    let responses = [
        (OpCode::Delete, any_of!(Response::Empty)),
        (OpCode::Create, any_of!(Response::Path(_))),
        (OpCode::Create2, any_of!(Response::Created { path, stat })),
        (OpCode::Exists, any_of!(Response::Stat(_))),
        (OpCode::GetData, any_of!(Response::Data { data, stat })),
        (OpCode::GetAcl, any_of!(Response::Acl { acl, stat })),
        (OpCode::GetChildren, any_of!(Response::Names(_))),
        (OpCode::GetChildren2, any_of!(Response::Children { names, stat })),
        (OpCode::Multi, any_of!(Response::Multi(_))),
        (OpCode::MultiRead, any_of!(Response::MultiRead(_))),
        (OpCode::GetAllChildrenNumber, any_of!(Response::Count(_))),
        (OpCode::WhoAmI, any_of!(Response::Identities(_))),
        (OpCode::Sasl, any_of!(Response::Sasl(_))),
    ];
    Union::new(responses.map(|(op, response)| (Just(op), response)))
}

fn decode_whole<T>(
    bytes: BytesMut,
    decode: impl FnOnce(&mut Decoder) -> Result<T, DecodeError>,
) -> T {
    let mut input = Decoder::new(bytes.freeze());
    let value = decode(&mut input).expect("an encoded message decodes");
    assert_eq!(input.remaining(), 0, "all bytes are read");
    value
}

fn round_trip<T: Record + PartialEq + std::fmt::Debug>(value: &T) {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    assert_eq!(&decode_whole(out, T::decode), value);
}

#[test]
fn records_have_the_lengths_that_they_say() {
    let header = ReplyHeader { xid: 1, zxid: Zxid(2), error: 3 };
    assert_eq!(encoded(&header).len(), ReplyHeader::LENGTH);
    assert_eq!(encoded(&Stat::default()).len(), Stat::LENGTH);
}

proptest! {
    #[test]
    fn requests_round_trip(request in request(), xid in any::<i32>()) {
        let mut out = BytesMut::new();
        request.encode(xid, &mut out);
        let decoded = decode_whole(out, |input| {
            let header = RequestHeader::decode(input)?;
            assert_eq!(header.xid, xid);
            Request::decode(header.op, input)
        });
        prop_assert_eq!(decoded, request);
    }

    #[test]
    fn responses_round_trip((op, response) in response()) {
        let mut out = BytesMut::new();
        response.encode(&mut out);
        prop_assert_eq!(decode_whole(out, |input| Response::decode(op, input)), response);
    }

    #[test]
    fn handshakes_round_trip(
        request in ConnectRequest::sample(),
        response in ConnectResponse::sample(),
    ) {
        round_trip(&request);
        round_trip(&response);
    }

    #[test]
    fn events_and_headers_round_trip(
        event in WatchEvent::sample(),
        header in ReplyHeader::sample(),
    ) {
        round_trip(&event);
        round_trip(&header);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        let input = || Decoder::new(bytes.clone());
        for op in -12..110 {
            let _ = Request::decode(op, &mut input());
            if let Some(op) = OpCode::from_code(op) {
                let _ = Response::decode(op, &mut input());
            }
        }
        let _ = ConnectRequest::decode(&mut input());
        let _ = ConnectResponse::decode(&mut input());
        let _ = WatchEvent::decode(&mut input());
        let _ = split_frame(&mut BytesMut::from(&bytes[..]), MAX_FRAME);
    }

    #[test]
    fn cut_off_requests_are_errors_or_shorter_requests(request in request(), cut in any::<prop::sample::Index>()) {
        let mut out = BytesMut::new();
        request.encode(1, &mut out);
        let whole = out.freeze().slice(8..);
        let part = whole.slice(..cut.index(whole.len() + 1));
        let decoded = Request::decode(request.op().code(), &mut Decoder::new(part.clone()));
        prop_assert!(part.len() == whole.len() || decoded != Ok(request));
    }
}
