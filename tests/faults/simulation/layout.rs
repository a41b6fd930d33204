//! Where do code and data of this process lie? No trace may depend on it. Who compares traces looks here first: two
//! processes, or two builds, that lie alike prove nothing.

use crate::simulation::life;

/// A line for each package that a seed runs: how far a function of it is from one of the simulation, which depends on the
/// build alone. The last line has what depends on the process: where code, stack and heap are.
pub(crate) fn layout() -> String {
    let here = life::live as *const () as usize;
    let functions = [
        ("agent", runyard_agent::agent::run as *const () as usize),
        ("core", runyard_core::decide::decide as *const () as usize),
        ("fakes", runyard_fakes::FakeCompute::machines as *const () as usize),
        ("operator", runyard_operator::controller::run as *const () as usize),
    ];
    let distance = |(package, at): (&str, usize)| format!("{package} {:x}\n", at.wrapping_sub(here));
    let (stack, heap) = (0_u8, Box::new(0_u8));
    let process = format!("process {here:x} {:p} {:p}\n", &raw const stack, &raw const *heap);
    functions.into_iter().map(distance).chain([process]).collect()
}
