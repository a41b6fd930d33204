//! Does `runyard debug` name what is wrong? Faults are put into first boot, registration, network, rights, clean-up,
//! capacity and runners of yards of real programs; once each has done its harm, `debug` is asked about the request that suffers.

mod ec2;
mod local;
mod named;
mod runner;

/// All of them must be named: the tests of the three files see to that.
#[test]
fn twenty_faults_and_more_are_seeded_into_every_part() {
    let all: Vec<_> = local::FAULTS.iter().chain(ec2::FAULTS).chain(runner::FAULTS).collect();
    assert!(all.len() >= 20, "{}", all.len());
    for part in named::Part::ALL {
        assert!(all.iter().any(|fault| fault.part == part), "{part:?}");
    }
}
