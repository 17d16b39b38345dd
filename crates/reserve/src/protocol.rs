//! What the agent that carries grants out is asked, and what it answers: a message each, of JSON, with open files.

use crate::{Action, GrantId, Memory, Request, Share, read_calls};
use machine::chain;
use serde::{Deserialize, Serialize};

/// The folder of root's agent.
pub const FOLDER: &str = "/run/nearside";
/// Name of its socket for grants.
pub const SOCKET: &str = "reserve.sock";
/// Tells a program the number of its grant.
pub const GRANT: &str = "NEARSIDE_GRANT";
/// Tells a program which of its descriptors is the handle of its grant.
pub const HANDLE: &str = "NEARSIDE_GRANT_HANDLE";
/// The longest call, bytes.
pub const MOST_CALL_BYTES: usize = 4096;
/// The longest answer, bytes. A refusal names at most 64 obstacles.
pub const MOST_ANSWER_BYTES: usize = 128 << 10;

/// A call. A grant is named by its number or name; without one, by the handle that comes with the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// A grant. Its handle comes with the answer, unless it stays.
    Create {
        /// What is asked for.
        request: Box<Request>,
        /// Whether it stays until it is released, and has no handle.
        #[serde(default)]
        stays: bool,
        /// How long it waits until it can be granted, s; without it, it is answered at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_s: Option<u64>,
    },
    /// A control group that is there already becomes a grant, which stays until it is released. Only root may.
    Adopt {
        /// What is asked for.
        request: Box<Request>,
        /// The group, named from the topmost one.
        cgroup: String,
    },
    /// A process joins a grant. Its pidfd comes first, then perhaps the handle.
    Enter {
        /// The grant.
        grant: Option<String>,
    },
    /// A grant gets memory of a further node, or its controllers are guarded from now on, or no longer.
    Upgrade {
        /// The grant.
        grant: Option<String>,
        /// The further memory.
        memory: Option<Memory>,
        /// Whether its controllers are guarded.
        controller: Option<bool>,
    },
    /// The holder of a guarded grant says how it did in a period of its own: while it misses its target, the rest of the
    /// machine has less.
    Report {
        /// The grant.
        grant: Option<String>,
        /// What it has, ms.
        latency_ms: f64,
        /// What it wants at most, ms.
        target_ms: f64,
    },
    /// A grant ends, or gives a part of it back.
    Release {
        /// The grant.
        grant: Option<String>,
        /// The part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<Share>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Granted and carried out.
    Granted {
        /// New and changed grants, without those that ended. The handles of new ones come in the same order.
        grants: Vec<GrantId>,
        /// The decision in words.
        text: String,
        /// The decision as values.
        document: serde_json::Value,
    },
    /// Not granted: other grants are in the way, or the user's quota is.
    NotAdmitted {
        /// The decision in words.
        text: String,
        /// The decision as values.
        document: serde_json::Value,
        /// Whether only what the user has already is in the way: then others that wait need not wait for this request.
        #[serde(skip)]
        is_of_user: bool,
    },
    /// It is done.
    Done {
        /// The grant.
        grant: GrantId,
    },
    /// The call breaks a rule that holds on every machine, or names what does not exist.
    Wrong(String),
    /// The caller may not do that, or it failed. Nothing is changed.
    Refused(String),
}

/// A value as a message.
pub fn message(of: &impl Serialize) -> Vec<u8> {
    // Only map keys and paths that are not UTF-8 could fail; calls and answers have neither.
    serde_json::to_vec(of).unwrap_or_default()
}

/// What a client sends: a call, or calls of the study, which are one transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A call.
    Call(Call),
    /// What the study's calls ask of the ledger.
    Study(Vec<Action>),
}

/// Parses a message; a malformed one gives the answer.
pub fn read_message(bytes: &[u8]) -> Result<Message, Answer> {
    /// The call's name, beside all else.
    #[derive(Deserialize)]
    struct Named {
        call: String,
    }
    let is_studys = |bytes| serde_json::from_slice(bytes).is_ok_and(|named: Named| named.call.starts_with("rcm_"));
    if bytes.trim_ascii_start().starts_with(b"[") || is_studys(bytes) {
        let wrong = |why: &dyn std::fmt::Display| Answer::Wrong(format!("invalid call: {why}"));
        let text = str::from_utf8(bytes).map_err(|error| wrong(&error))?;
        return read_calls(text).map(Message::Study).map_err(|error| wrong(&chain(&error)));
    }
    read_call(bytes).map(Message::Call)
}

/// Parses a call; a malformed one gives the answer.
pub fn read_call(bytes: &[u8]) -> Result<Call, Answer> {
    serde_json::from_slice(bytes).map_err(|error| Answer::Wrong(format!("invalid call: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_are_json_without_unknown_words() {
        let call = |text: &str| read_call(text.as_bytes());
        let text = r#"{"call":"create","request":{"cores":{"any":2},"isolate":{"core":true}}}"#;
        let Ok(Call::Create { request, stays: false, wait_s: None }) = call(text) else { panic!("{:?}", call(text)) };
        assert!(request.isolate.core && request.most_slowdown > 0.0);
        assert_eq!(
            call(r#"{"call":"release","grant":"db"}"#),
            Ok(Call::Release { grant: Some("db".into()), only: None })
        );
        for (wrong, why) in [
            ("", "EOF"),
            ("[]", "missing field `call`"),
            (r#"{"call":"mint"}"#, "unknown variant `mint`"),
            (r#"{"call":"release","grants":"db"}"#, "unknown field `grants`"),
            (r#"{"call":"release","grant":7}"#, "invalid type: integer `7`, expected a string"),
            (r#"{"call":"create","request":{"core":2}}"#, "unknown field `core`"),
            (r#"{"call":"create","request":{"cores":{"any":-1}}}"#, "invalid value"),
            (r#"{"call":"create","request":{},"stays":1}"#, "expected a boolean"),
            (r#"{"call":"report","grant":"7","latency_ms":"1","target_ms":2}"#, "invalid type: string"),
            (r#"{"call":"report","grant":"7","latency_ms":1}"#, "missing field `target_ms`"),
        ] {
            let Err(Answer::Wrong(said)) = call(wrong) else { panic!("{wrong}") };
            assert!(said.starts_with("invalid call: ") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn calls_of_the_study_are_known_by_their_names() {
        let line = r#"{"call":"rcm_memory_controller_release","mem_isolated":7}"#;
        let one = Message::Study(vec![Action::Guard(GrantId(7), false)]);
        assert_eq!(read_message(line.as_bytes()), Ok(one));
        let list = format!(" [{line},{line}]");
        assert!(matches!(read_message(list.as_bytes()), Ok(Message::Study(actions)) if actions.len() == 2));
        let release = r#"{"call":"release","grant":"7","only":"memory"}"#;
        let only = Call::Release { grant: Some("7".into()), only: Some(Share::Memory) };
        assert_eq!(read_message(release.as_bytes()), Ok(Message::Call(only)));
        for (wrong, why) in [
            ("[]", "a transaction has 1 to 64 calls, not 0"),
            (r#"[{"call":"release","grant":"7"}]"#, "unknown variant `release`"),
            (r#"{"call":"rcm_mint"}"#, "unknown variant `rcm_mint`"),
            (r#"{"call":"rcm_core_memd_release"}"#, "missing field `core`"),
            (r#"{"call":"rcm_core_memd_release","core":"7"}"#, "invalid type: string"),
            (r#"{"call":"rcm_core_mem_release","core":7,"mem":8}"#, "of different grants"),
        ] {
            let Err(Answer::Wrong(said)) = read_message(wrong.as_bytes()) else { panic!("{wrong}") };
            assert!(said.starts_with("invalid call: ") && said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_call_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_message(&bytes);
        }
    }
}
