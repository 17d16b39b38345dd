//! A machine you do not have: builds, boots and drives a virtual NUMA machine that runs unmodified Linux and
//! unmodified programs, on a clock that follows a model of its memory.

pub mod setup;
