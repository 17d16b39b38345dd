//! Why the kernel refuses, what works here, and the settings that decide it.

pub(crate) mod diagnosis;
pub(crate) mod feature;
pub(crate) mod refusal;
pub(crate) mod switch;
pub(crate) mod switch_guard;
pub(crate) mod system_state;
