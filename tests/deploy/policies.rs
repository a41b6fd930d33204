//! Who may do what on AWS? The documents in `config/iam` and the roles of `config/cloudformation.yaml`, judged by an
//! evaluator of our own: IAM's simulator knows nothing of `ec2:SourceInstanceARN`, and no emulator of leading keys.

mod calls;
mod cloudformation;
mod configuration;
mod documents;
mod evaluator;
mod hcl;
mod matrix;
mod mutants;
mod shells;
mod stack;
mod terraform;
