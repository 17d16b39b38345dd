//! The machine and the rules by which requests are decided.

use super::request_options::cpus_of;
use crate::options::machine_source;
use crate::options::places::Cpus;
use crate::options::usage_error::UsageError;
use crate::verbs::place::described;
use agent::grants::Hardware;
use clap::{Args, ValueEnum};
use machine::{Machine, Mistake, bounded};
use reserve::{Asker, Control, Facts, Ledger, Plan, Refusal, Rule, Rules, Throttle, Zone};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where to decide, and how.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// A preset or a machine file, as `nearside measure --output FILE` writes them [default: this machine]
    #[arg(long, value_name = "PRESET|FILE")]
    machine: Option<String>,

    /// The grants of this plan exist already, and its rules and tenants hold
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,

    /// The test of guarded controllers
    #[arg(long, value_enum, default_value_t = RuleName::Forecast)]
    rule: RuleName,

    /// Grants are made of these CPUs only, such as 0-3,8 or package:1
    #[arg(long, value_name = "CPUS")]
    zone: Option<Cpus>,

    /// No grant gets these CPUs
    #[arg(long, value_name = "CPUS")]
    keep_back: Option<Cpus>,

    /// Leave programs without isolation where they are, also in the way of the request
    #[arg(long)]
    keep_tenants: bool,

    /// Guard controllers and routes also on machines without a cache directory
    #[arg(long)]
    without_directory: bool,

    /// What limits the bandwidth of the rest of the machine
    #[arg(long, value_enum, default_value_t = ThrottleName::Best)]
    throttle: ThrottleName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RuleName {
    /// No guarded grant is forecast to be slowed by more than its bound
    Forecast,
    /// That of RCM (Razavi, 2011): what is drawn, and as much again as the hungriest core draws, fits
    Seed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ThrottleName {
    /// The processor's bandwidth control if the machine has it, or else shares of CPU time
    Best,
    /// Nothing: what the rest is seen to draw decides
    None,
    /// Shares of CPU time (cpu.max)
    Duty,
    /// The processor's bandwidth control, by resctrl or the lab's
    Hardware,
}

impl MachineOptions {
    /// Whether it is this machine, as it is.
    pub fn is_this(&self) -> bool {
        self.machine.is_none() && self.after.is_none()
    }

    /// Whether all is as without options.
    pub fn is_default(&self) -> bool {
        self.is_this() && self.has_usual_rules()
    }

    /// Whether no option changes the rules.
    fn has_usual_rules(&self) -> bool {
        let rules = self.rule == RuleName::Forecast && self.throttle == ThrottleName::Best;
        let zone = self.zone.is_none() && self.keep_back.is_none();
        rules && zone && !self.keep_tenants && !self.without_directory
    }

    /// Refuses options that a plan decides.
    fn check_rules_of_plan(&self) -> Result<(), Box<dyn Error>> {
        let why = "a plan has its own zone, rule and throttle: write them into its file, and leave out --rule, --zone, \
                   --keep-back, --keep-tenants, --without-directory and --throttle";
        if self.has_usual_rules() { Ok(()) } else { Err(UsageError::boxed(why)) }
    }

    /// Whether what limits the rest is the best that the machine has.
    pub fn has_best_throttle(&self) -> bool {
        self.throttle == ThrottleName::Best
    }

    /// The machine.
    pub fn machine(&self) -> Result<Machine, Box<dyn Error>> {
        Ok(match &self.machine {
            Some(from) => machine_source::read(Some(from))?,
            None => machine_source::running()?.0,
        })
    }

    /// Fails where the machine's description is of another one than this.
    pub fn check_is_this(&self) -> Result<(), Box<dyn Error>> {
        described(self.machine.as_deref()).map(|_| ())
    }

    /// The machine with its grants.
    pub fn ledger(&self, asker: &Asker) -> Result<Ledger, Box<dyn Error>> {
        let throttle = match self.throttle {
            ThrottleName::Best => None,
            ThrottleName::None => Some(Throttle::None),
            ThrottleName::Duty => Some(Throttle::Duty),
            ThrottleName::Hardware => Some(Throttle::Hardware),
        };
        let rule = if self.rule == RuleName::Seed { Rule::Seed } else { Rule::Forecast };
        let cpus = |cpus: &Option<Cpus>| cpus.as_ref().map(|cpus| cpus_of(cpus, &|| self.machine())).transpose();
        let zone = Zone { cpus: cpus(&self.zone)?, keep_back: cpus(&self.keep_back)?.unwrap_or_default() };
        let (keep_tenants, without_directory) = (self.keep_tenants, self.without_directory);
        let rules = Rules { zone, rule, keep_tenants, without_directory };
        match &self.after {
            None => self.empty(rules, |machine| self.control(machine, throttle)),
            Some(path) => {
                self.check_rules_of_plan()?;
                let plan = read_plan(path)?;
                let mut ledger = self.empty(plan.rules.clone(), control_of(&plan))?;
                ledger.usage = plan.flows(&ledger.facts).map_err(refused)?;
                let after = ledger.admit(&plan.requests, asker);
                let after = after.map_err(|refusal| format!("{}: the plan is refused: {refusal}", path.display()))?;
                Ok(after.after)
            }
        }
    }

    /// The machine by the rules and with the tenants of a plan, but not yet with its grants.
    pub fn of_plan(&self, plan: &Plan, asker: &Asker) -> Result<Ledger, Box<dyn Error>> {
        self.check_rules_of_plan()?;
        let mut ledger = self.empty(plan.rules.clone(), control_of(plan))?;
        if self.after.is_some() {
            let before = self.ledger(asker)?;
            ledger.usage.clone_from(&before.usage);
            before.grants().cloned().for_each(|grant| ledger.adopt(grant));
        }
        ledger.usage.extend(plan.flows(&ledger.facts).map_err(refused)?);
        Ok(ledger)
    }

    /// That of a machine by its description, and of this one also what the kernel offers.
    fn control(&self, machine: &Machine, throttle: Option<Throttle>) -> Result<Control, Box<dyn Error>> {
        let described = Control::of(machine, throttle);
        if self.machine.is_some() {
            return Ok(described);
        }
        let hardware = Hardware::of_kernel();
        let has_limits = hardware.is_some_and(Hardware::has_limits);
        let is_described = || Control::of(machine, None).throttle == Throttle::Hardware;
        if throttle == Some(Throttle::Hardware) && !has_limits && !is_described() {
            let why = "--throttle hardware: the processor limits no bandwidth, or resctrl is not mounted: `nearside doctor` says which";
            return Err(UsageError::boxed(why));
        }
        let throttle = if throttle.is_none() && has_limits { Throttle::Hardware } else { described.throttle };
        Ok(Control { throttle, ways: described.ways.or(hardware.and_then(Hardware::ways)) })
    }

    fn empty(
        &self,
        rules: Rules,
        control: impl Fn(&Machine) -> Result<Control, Box<dyn Error>>,
    ) -> Result<Ledger, Box<dyn Error>> {
        let machine = self.machine()?;
        let control = control(&machine)?;
        let facts = Facts::new(machine, control);
        let unknown = rules.zone.unknown(&facts);
        if unknown.is_empty() {
            return Ok(Ledger::new(Arc::new(facts), rules));
        }
        let all = facts.machine.cpus();
        Err(UsageError::boxed(format!("no CPUs {unknown} for the zone: this machine has CPUs {all}")))
    }
}

/// The control hardware that a plan names, or that of the machine.
fn control_of(plan: &Plan) -> impl Fn(&Machine) -> Result<Control, Box<dyn Error>> {
    |machine| Ok(plan.control.clone().unwrap_or_else(|| Control::of(machine, None)))
}

/// Reads a plan file.
pub fn read_plan(path: &Path) -> Result<Plan, Box<dyn Error>> {
    let text = bounded::text(path)
        .map_err(|error| format!("cannot read the plan {}: {}", path.display(), machine::system_words(&error)))?;
    Plan::from_toml(&text, path).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
        lines.join("\n").into()
    })
}

/// A refusal as an error: what names something that does not exist is wrong usage.
pub fn refused(refusal: Refusal) -> Box<dyn Error> {
    match refusal {
        Refusal::Unknown(text) => UsageError::boxed(text),
        other => other.into(),
    }
}
