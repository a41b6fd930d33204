//! Does `runyard init` make what a yard on EC2 stands on, once, and nothing twice? The real program on real engines:
//! records in one, queues in another, launch templates at a third.

mod makes;
mod preflight;
mod refuses;
mod site;
