//! What threads to come begin with.

use crate::error::Error;
use crate::threads::{Combine, run_on, run_process_on};
use crate::{policies, set_policy};
use linux::{MemoryPolicy, Pid, Tid};
use machine::CpuSet;
use std::io;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

/// CPUs and memory policy for threads. A template changes no thread by itself: threads that are started by it begin with
/// it, and [`apply`](Self::apply) brings it to threads that exist.
///
/// Linux has no template of a process: a thread that is started otherwise inherits from the thread that starts it.
/// Once a template has been applied to all threads of a process, threads to come inherit it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The CPUs; `None` leaves them to inheritance.
    pub cpus: Option<CpuSet>,
    /// The memory policy; `None` leaves it to inheritance.
    pub policy: Option<MemoryPolicy>,
}

impl Template {
    /// Brings the template to the calling thread. If the policy is refused, the CPUs stay as they were, too. Needs no
    /// privileges.
    pub fn enter(&self) -> Result<(), Error> {
        let before = self.policy.is_some().then(policies::policy).transpose()?;
        self.policy.as_ref().map_or(Ok(()), set_policy)?;
        let ran = self.cpus.as_ref().map_or(Ok(()), |cpus| run_on(Tid::CALLER, cpus));
        if let (Err(_), Some(before)) = (&ran, before) {
            set_policy(&before)?;
        }
        ran
    }

    /// Starts a thread that has the template before `run` begins. If the kernel refuses the template, `run` is never
    /// called. Needs no privileges.
    pub fn spawn<T: Send + 'static>(
        &self,
        builder: Builder,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        let no_thread = |answer: &io::Error| Error::plain("start a thread", "clone", answer);
        let (template, (entered, result)) = (self.clone(), channel());
        let (begin, may_begin) = channel::<()>();
        let thread = builder.spawn(move || {
            let is_entered = template.enter();
            let runs = is_entered.is_ok();
            // The creator waits for it.
            let _ = entered.send(is_entered);
            // Without the template there is no value to return: the creator drops its handle, and never joins.
            if !runs || may_begin.recv().is_err() {
                std::panic::resume_unwind(Box::new(()));
            }
            run()
        });
        let thread = thread.map_err(|answer| no_thread(&answer))?;
        match result.recv() {
            Ok(Ok(())) => {
                let _ = begin.send(());
                Ok(thread)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(no_thread(&io::Error::other("it ended before it began"))),
        }
    }

    /// Brings the CPUs of the template to all threads of a process that exist, and returns their number. The memory policy
    /// cannot follow: Linux lets only a thread set its own, so a template with one is refused here, before anything is
    /// changed. Privileges as [`run_process_on`].
    pub fn apply(&self, pid: Pid, combine: Combine) -> Result<usize, Error> {
        let attempt = || format!("apply a template to process {pid}");
        if self.policy.is_some() {
            let why =
                "Linux lets only a thread set its own memory policy: start threads by the template, or move pages";
            return Err(Error::argument(attempt(), why));
        }
        let nothing = || Error::argument(attempt(), "the template has no CPUs");
        run_process_on(pid, self.cpus.as_ref().ok_or_else(nothing)?, combine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuId, affinity, policy};
    use linux::allowed_memory_nodes;

    /// Claims 1 and 2 of the specification: threads that exist stay as they are, and the next one has the template.
    #[test]
    fn a_thread_begins_with_the_template_and_others_keep_what_they_have() {
        let before = affinity(Tid::CALLER).unwrap();
        let last: CpuSet = before.iter().last().into_iter().collect();
        let node = allowed_memory_nodes().ok().and_then(|nodes| nodes.first());
        let template = Template { cpus: Some(last.clone()), policy: node.map(MemoryPolicy::bind) };
        let thread = template.spawn(Builder::new(), || (affinity(Tid::CALLER).unwrap(), policy().ok())).unwrap();
        let (cpus, own) = thread.join().unwrap();
        assert_eq!(cpus, last);
        if let Some(node) = node {
            assert_eq!(own, Some(MemoryPolicy::bind(node)));
        }
        assert_eq!(affinity(Tid::CALLER).unwrap(), before);
    }

    #[test]
    fn a_refused_template_starts_nothing() {
        let beyond = Template { cpus: Some([CpuId(100_000)].into_iter().collect()), policy: None };
        let (sender, receiver) = channel();
        let error = beyond.spawn(Builder::new(), move || sender.send(())).unwrap_err();
        assert!(error.to_string().contains("there is no CPU 100000"), "{error}");
        assert!(receiver.recv().is_err());
        let own = Pid(std::process::id());
        assert!(Template::default().apply(own, Combine::Overwrite).is_err());
        let with_policy = Template { policy: Some(MemoryPolicy::default()), ..beyond };
        let error = with_policy.apply(own, Combine::Overwrite).unwrap_err();
        assert!(error.to_string().contains("only a thread set its own memory policy"), "{error}");
    }
}
