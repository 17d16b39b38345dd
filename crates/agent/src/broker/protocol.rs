//! Calls and answers: a message each, of JSON, with open files.

use reserve::{GrantId, Memory, Request};
use serde::{Deserialize, Serialize};

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
    /// A grant ends.
    Release {
        /// The grant.
        grant: Option<String>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A request is decided, and carried out if it is granted.
    Decided {
        /// The grant; none if it is refused.
        grant: Option<GrantId>,
        /// The decision in words.
        text: String,
        /// The decision as values.
        document: serde_json::Value,
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
pub(super) fn message(of: &impl Serialize) -> Vec<u8> {
    // Only map keys and paths that are not UTF-8 could fail; calls and answers have neither.
    serde_json::to_vec(of).unwrap_or_default()
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
        let Ok(Call::Create { request, stays: false }) = call(text) else { panic!("{:?}", call(text)) };
        assert!(request.isolate.core && request.most_slowdown > 0.0);
        assert_eq!(call(r#"{"call":"release","grant":"db"}"#), Ok(Call::Release { grant: Some("db".into()) }));
        for (wrong, why) in [
            ("", "EOF"),
            ("[]", "missing field `call`"),
            (r#"{"call":"mint"}"#, "unknown variant `mint`"),
            (r#"{"call":"release","grants":"db"}"#, "unknown field `grants`"),
            (r#"{"call":"release","grant":7}"#, "invalid type: integer `7`, expected a string"),
            (r#"{"call":"create","request":{"core":2}}"#, "unknown field `core`"),
            (r#"{"call":"create","request":{"cores":{"any":-1}}}"#, "invalid value"),
            (r#"{"call":"create","request":{},"stays":1}"#, "expected a boolean"),
        ] {
            let Err(Answer::Wrong(said)) = call(wrong) else { panic!("{wrong}") };
            assert!(said.starts_with("invalid call: ") && said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_call_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_call(&bytes);
        }
    }
}
