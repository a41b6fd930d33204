//! The stand-in GitHub as its clients see it: the adapter that also talks to the real one, bare HTTP, and the runner
//! package as an agent uses it.

mod demands;
mod http;
mod listener;
