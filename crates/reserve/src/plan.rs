//! Plan files: many requests that are decided as one.

use crate::facts::{Control, Facts};
use crate::ledger::{Flow, Rule, Rules};
use crate::refusal::Refusal;
use crate::request::{ReadWrite, Request, WrittenRequest, parse_bandwidth};
use crate::zone::Zone;
use machine::{CpuSet, Mistake, NodeId, Violation, read_checked};
use serde::Deserialize;
use std::path::Path;

/// Most requests of a plan.
const MOST_REQUESTS: usize = 4096;

/// A plan: what to ask of which machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By which rules.
    pub rules: Rules,
    /// What limits the rest of the machine; by default what the machine has.
    pub control: Option<Control>,
    /// Programs without grants.
    pub tenants: Vec<Tenant>,
    /// The requests, decided as one transaction.
    pub requests: Vec<Request>,
}

/// Programs without a grant, by what they draw from a node's memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// The node of their CPUs.
    pub from: NodeId,
    /// The node of their memory.
    pub to: NodeId,
    /// What they read: bytes/s, as a text such as `4G`.
    #[serde(default)]
    pub read: String,
    /// What they write.
    #[serde(default)]
    pub write: String,
    /// The number of their cores.
    #[serde(default = "one")]
    pub cores: u32,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Rule,
    zone: Option<CpuSet>,
    #[serde(default)]
    keep_back: CpuSet,
    #[serde(default)]
    keep_tenants: bool,
    #[serde(default)]
    without_directory: bool,
    control: Option<Control>,
    #[serde(default, rename = "tenant")]
    tenants: Vec<Tenant>,
    #[serde(rename = "request")]
    requests: Vec<WrittenRequest>,
}

impl Plan {
    /// Reads and checks a plan. `path` is for errors.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, Vec<Mistake>> {
        let mut plan = Self::default();
        let check = |file: &File| {
            let violations = file.read(&mut plan);
            violations.err().unwrap_or_default()
        };
        let _: File = read_checked(text, path, check)?;
        Ok(plan)
    }

    /// The tenants' traffic on a machine. Fails where they are of nodes that it does not have.
    pub fn flows(&self, facts: &Facts) -> Result<Vec<Flow>, Refusal> {
        let exists = |node: NodeId| facts.machine.node(node).map(|_| node);
        let unknown = |node| Refusal::Unknown(format!("no node {node}, which a tenant of the plan has"));
        let flow = |tenant: &Tenant| {
            let from = exists(tenant.from).ok_or_else(|| unknown(tenant.from))?;
            let to = exists(tenant.to).ok_or_else(|| unknown(tenant.to))?;
            let rate = |text: &str| parse_bandwidth(text).unwrap_or(0.0);
            let load = ReadWrite { read: rate(&tenant.read), write: rate(&tenant.write) };
            Ok(Flow { of: None, from, to, load, cores: tenant.cores })
        };
        self.tenants.iter().map(flow).collect()
    }
}

impl File {
    fn read(&self, plan: &mut Plan) -> Result<(), Vec<Violation>> {
        let mut found = Vec::new();
        if !(1..=MOST_REQUESTS).contains(&self.requests.len()) {
            let rule = format!("a plan has 1 to {MOST_REQUESTS} requests, not {}", self.requests.len());
            found.push(Violation { field: "request".to_owned(), rule });
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            for (name, text) in [("read", &tenant.read), ("write", &tenant.write)] {
                if let Err(rule) =
                    parse_bandwidth(text).or_else(|rule| if text.is_empty() { Ok(0.0) } else { Err(rule) })
                {
                    found.push(Violation { field: format!("tenant[{index}].{name}"), rule });
                }
            }
        }
        let mut requests = Vec::new();
        for (index, written) in self.requests.iter().enumerate() {
            match written.clone().read() {
                Ok(request) => requests.push(request),
                Err(broken) => {
                    let named = |Violation { field, rule }| {
                        let field = format!("request[{index}].{field}");
                        Violation { field, rule }
                    };
                    found.extend(broken.into_iter().map(named));
                }
            }
        }
        let zone = Zone { cpus: self.zone.clone(), keep_back: self.keep_back.clone() };
        *plan = Plan {
            rules: Rules {
                zone,
                rule: self.rule,
                keep_tenants: self.keep_tenants,
                without_directory: self.without_directory,
            },
            control: self.control.clone(),
            tenants: self.tenants.clone(),
            requests,
        };
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_plan_is_read_with_the_line_of_each_mistake() {
        let text = "rule = \"seed\"\n[[tenant]]\nfrom = 0\nto = 0\nread = \"4G\"\n[[request]]\ncores = 2\nisolate = [\"cache\"]\n";
        let plan = Plan::from_toml(text, Path::new("plan.toml")).unwrap();
        assert!(plan.rules.rule == Rule::Seed && plan.requests[0].isolate.core && plan.tenants[0].cores == 1);
        for (text, message) in [
            ("[[request]]\ncores = 0\n", "plan.toml:2: request[0].cores: a grant has 1 to 8192 cores, not 0"),
            ("[[request]]\nlocal = true\nnode = 1\n", "plan.toml:3: request[0].node: memory is local or of a node"),
            ("[[request]]\nisolate = [\"die\"]\n", "plan.toml:2: request[0].isolate"),
            ("[[request]]\nbandwidth = \"-1G\"\n", "plan.toml:2: request[0].bandwidth"),
            ("[[request]]\nbandwith = 1\n", "did you mean `bandwidth`?"),
            ("request = []\n", "a plan has 1 to 4096 requests, not 0"),
            ("[[request]]\n[[tenant]]\nfrom=0\nto=0\nread=\"x\"\n", "plan.toml:5: tenant[0].read"),
        ] {
            let mistakes = Plan::from_toml(text, Path::new("plan.toml")).unwrap_err();
            let said = mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n");
            assert!(said.contains(message), "{text}: {said}");
        }
    }

    #[test]
    fn tenants_of_nodes_that_are_not_there_are_refused() {
        let facts = Facts::new(machine::presets::find("small-2x2").unwrap(), Control::default());
        let plan = |from, to| {
            let text = format!("[[tenant]]\nfrom = {from}\nto = {to}\nread = \"1G\"\n[[request]]\n");
            Plan::from_toml(&text, Path::new("plan.toml")).unwrap().flows(&facts)
        };
        assert_eq!(plan(0, 1).unwrap()[0].load, ReadWrite { read: 1e9, write: 0.0 });
        for (from, to) in [(0, 9), (9, 0)] {
            assert_eq!(plan(from, to).unwrap_err().to_string(), "no node 9, which a tenant of the plan has");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = (Plan::from_toml(&text, Path::new("plan.toml")), crate::calls::read_calls(&text));
        }
    }
}
