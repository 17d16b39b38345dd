//! Actions as `--explain` prints them.

use machine::{NodeId, Pid};
use placement::{Action, PageTarget};

#[test]
fn one_node_is_no_plural() {
    let dealt = |nodes: &[u32]| {
        let page = |node: &u32| PageTarget { address: 4096, node: NodeId(*node) };
        let pages = nodes.iter().map(page).collect();
        Action::InterleavePages { pid: Pid(7), weights: Vec::new(), pages, bytes: 8192 }.to_string()
    };
    assert_eq!(dealt(&[3, 3]), "deal 2 pages (8 KiB) of process 7 to node 3");
    assert_eq!(dealt(&[1, 3]), "deal 2 pages (8 KiB) of process 7 to nodes 1,3");
}
