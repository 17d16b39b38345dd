//! Checks whether the pages of shared memory follow its policy.

use linux::{MemoryMode, MemoryPolicy, Row};
use machine::NodeId;

/// Pages of this size that have another policy than this one, or are on other nodes than it says, with a description of
/// each row of them. For interleave, the first page may be on any of the nodes.
pub fn mismatches(
    policy: &MemoryPolicy,
    page_bytes: u64,
    policies: &[Row<MemoryPolicy>],
    nodes: &[Row<NodeId>],
) -> Vec<Row<String>> {
    let other = policies.iter().filter(|row| row.value != *policy);
    let other = other.map(|row| Row { range: row.range.clone(), value: format!("its policy is {}", row.value) });
    let mut wrong: Vec<Row<String>> = other.collect();
    let in_turn = policy.mode == MemoryMode::Interleave && policy.nodes.len() > 1;
    let mut before = None;
    for row in nodes {
        let next = before.and_then(|before| policy.nodes.iter().find(|node| *node > before).or(policy.nodes.first()));
        let is_right = match policy.mode {
            MemoryMode::Default | MemoryMode::Local => true,
            _ if !policy.nodes.contains(row.value) => false,
            // A row of several pages on one node is not interleaved.
            _ if in_turn => next.is_none_or(|next| next == row.value) && row.range.end - row.range.start == page_bytes,
            _ => true,
        };
        if !is_right {
            wrong.push(Row { range: row.range.clone(), value: format!("on node {}", row.value) });
        }
        before = Some(row.value);
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(mode: MemoryMode, set: &str, nodes: &[(u64, u32)]) -> String {
        let policy = MemoryPolicy::new(mode, set.parse().unwrap());
        let rows = nodes.iter().scan(0, |start, (pages, node)| {
            let range = *start..*start + pages * 4096;
            *start = range.end;
            Some(Row { range, value: NodeId(*node) })
        });
        let policies = [Row { range: 0..4096, value: policy.clone() }];
        let wrong = mismatches(&policy, 4096, &policies, &rows.collect::<Vec<_>>());
        let line = |row: &Row<String>| format!("{}-{}: {};", row.range.start / 4096, row.range.end / 4096, row.value);
        wrong.iter().map(line).collect::<Vec<_>>().concat()
    }

    #[test]
    fn pages_on_other_nodes_are_reported() {
        assert_eq!(wrong(MemoryMode::Bind, "1-2", &[(3, 1), (1, 0), (1, 2)]), "3-4: on node 0;");
        assert_eq!(wrong(MemoryMode::Preferred, "1", &[(3, 1)]), "");
        assert_eq!(wrong(MemoryMode::Local, "", &[(3, 1)]), "");
    }

    #[test]
    fn interleaved_pages_take_turns() {
        assert_eq!(wrong(MemoryMode::Interleave, "0,2,5", &[(1, 2), (1, 5), (1, 0), (1, 2)]), "");
        assert_eq!(wrong(MemoryMode::Interleave, "0,2,5", &[(1, 2), (1, 0), (2, 2)]), "1-2: on node 0;2-4: on node 2;");
        assert_eq!(wrong(MemoryMode::Interleave, "3", &[(4, 3)]), "");
    }

    #[test]
    fn another_policy_is_reported() {
        let bind = |node| MemoryPolicy::bind(NodeId(node));
        let policies = [Row { range: 0..4096, value: bind(1) }, Row { range: 4096..8192, value: bind(2) }];
        let wrong = mismatches(&bind(1), 4096, &policies, &[]);
        assert_eq!(wrong, [Row { range: 4096..8192, value: "its policy is bind: 2".to_owned() }]);
    }
}
