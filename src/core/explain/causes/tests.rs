use std::collections::BTreeSet;

use super::{CAUSES, probable};

/// Real messages of our own programs, EC2, GitHub's runner and the kernel, and the cause that each must be recognised
/// as.
const SAID: &[(&str, &str)] = &[
    (
        "the first boot failed: the agent from https://a.example/agent has not the SHA-256 00ab",
        "agent-digest",
    ),
    ("the first boot failed: the agent cannot be had from https://a.example/agent", "agent-unreachable"),
    ("its SHA-256 is 00ab, not 01ab; mend runner.sha256 or runner.url", "package-digest"),
    ("the runner package: the server answers 403 Forbidden", "package-missing"),
    ("run.sh cannot be started: Exec format error (os error 8)", "wrong-architecture"),
    (
        "the first boot failed: nft: No such file or directory: jobs could take this machine's role",
        "no-packet-filter",
    ),
    ("job_user: ci can come back after its jobs: it has the shell \"/bin/bash\"", "account-comes-back"),
    ("this machine cannot be lent: a network namespace: Operation not permitted", "no-namespaces"),
    ("the metadata service at http://169.254.169.254 answers", "metadata-reachable"),
    ("/run/docker.sock answers: its user is root", "engine-reachable"),
    (
        "the pre-runner script ended with exit status: 1: head: error writing 'standard output': No space left on device",
        "disk-full",
    ),
    (
        "the pre-runner script ended with exit status: 6: curl: (6) Could not resolve host: packages",
        "no-name-service",
    ),
    ("curl: (7) Failed to connect to 10.0.0.1 port 443 after 0 ms: Couldn't connect to server", "no-route"),
    (
        "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        "machine-role",
    ),
    ("what it left: /var/lib/runyard/claims: Not a directory (os error 20)", "left-behind"),
    ("powers off: the pre-runner script ended with exit status: 3", "pre-runner-script"),
    ("Process terminated. Couldn't find a valid ICU package installed on the system.", "libicu-missing"),
    ("no fresh directory: No space left on device (os error 28)", "disk-full"),
    (
        "run.sh ended before it listened, GitHub takes no runner of this version any more: pin a newer package",
        "runner-deprecated",
    ),
    ("run.sh ended before it listened, its name is connected from elsewhere", "runner-name-taken"),
    ("a runner does not listen: i-1: run.sh ended, its listener died: Exiting runner...", "runner-killed"),
    ("run.sh ended, GitHub does not know it any more: Removed .runner", "runner-forgotten"),
    ("its runner cannot reach GitHub: Runner connect error: Response status code: 503", "runner-cut-off"),
    ("Could not find any self-hosted runner group named \"gpu\".", "runner-group"),
    ("GitHub answers 401 Unauthorized: Bad credentials", "github-credential"),
    ("403 Forbidden: Resource not accessible by integration", "github-permission"),
    (
        "config.sh: Http response code: NotFound from 'POST https://api.github.com/actions/runner-registration' 404",
        "github-scope",
    ),
    ("API rate limit exceeded for installation ID 1", "github-limit"),
    ("Signature expired: 20261122T101010Z is now earlier than 20261122T102010Z", "clock"),
    ("curl: (6) Could not resolve host: github.com", "no-name-service"),
    ("dispatch failure: invalid peer certificate: UnknownIssuer", "certificate"),
    ("the runner package: error trying to connect: Network is unreachable (os error 101)", "no-route"),
    (
        "User: arn:aws:sts::1:assumed-role/m/i-1 is not authorized to perform: dynamodb:GetItem on resource",
        "machine-role",
    ),
    ("UnauthorizedOperation: You are not authorized to perform this operation.", "operator-policy"),
    ("VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit", "quota"),
    ("InsufficientInstanceCapacity: We currently do not have sufficient m7i.large capacity", "no-capacity"),
    ("InvalidAMIID.NotFound: The image id '[ami-0]' does not exist", "image"),
    ("InvalidSubnetID.NotFound: The subnet ID 'subnet-0' does not exist", "network-settings"),
    ("Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state", "volume-key"),
    ("Client.VolumeLimitExceeded: Volume limit exceeded", "volume"),
    ("Server.SpotInstanceTermination: Instance terminated", "spot-taken"),
    ("/var/lib/x are not runyard-job's, but it may write to them and they were changed", "left-behind"),
    ("it was ended in created, and its agent never reported", "never-reported"),
    ("reason unhealthy", "fell-silent"),
    ("Client.UserInitiatedShutdown: User initiated shutdown", "stopped-itself"),
    ("class small has as many machines as max allows (8)", "class-full"),
    ("its class is paused", "class-paused"),
    ("UnknownClass: there is no class smal", "class-unknown"),
    ("NotAllowed: class small does not admit demo/app", "not-allowed"),
    ("TooMany: demo/app has 1000 open requests", "too-many"),
    ("demo/app has no run 7 that GitHub shows us", "run-unknown"),
    ("no operator leads: a has not renewed the lease since 2026-01-05T12:00:00Z", "no-leader"),
    ("it cannot be read: max: \"many\" is no number", "unreadable-record"),
    ("it ended with reason expired: expired by cli:ada", "ended-by-a-person"),
    ("FailedByPerson: failed by cli:ada", "ended-by-a-person"),
    ("IntentIgnored: class: served as it was accepted", "intent-ignored"),
    ("Inventory: the list of machines lacks 9 of 12: too many to believe it", "list-disbelieved"),
    ("Silence: 9 of 12 agents fell silent together: none is ended for that yet", "silence-in-bulk"),
    ("gzip: stdin: not in gzip format", "package-damaged"),
    ("the runner package: the server answers 503 Service Unavailable", "server-fails"),
    ("run.sh: /lib/libc.so.6: version `GLIBC_2.38' not found", "library-missing"),
    ("no fresh directory: Read-only file system (os error 30)", "disk-read-only"),
    ("run.sh cannot be started: Cannot allocate memory (os error 12)", "machine-exhausted"),
    (
        "403: Although you appear to have the correct credentials, the `acme` organization has an IP allow list enabled",
        "github-refuses-address",
    ),
    ("403: This installation has been suspended", "github-suspended"),
    ("Repository access blocked", "github-disabled"),
    ("RequestLimitExceeded: Request limit exceeded.", "throttled"),
    ("ExpiredTokenException: The security token included in the request is expired", "session-ended"),
    (
        "UnrecognizedClientException: The security token included in the request is invalid.",
        "credentials-unknown",
    ),
    ("ResourceNotFoundException: Requested resource not found: Table: x not found", "table-missing"),
    ("InsufficientFreeAddressesInSubnet: There are not enough free addresses in subnet", "subnet-full"),
    (
        "PendingVerification: Your request for accessing resources in this region is being validated",
        "account-not-ready",
    ),
    ("InvalidParameterValue: Value (x) for parameter groupId is invalid", "launch-settings"),
    (
        "Unsupported: Your requested instance type (x) is not supported in your requested Availability Zone",
        "type-not-there",
    ),
    ("ReservationCapacityExceeded: The requested reservation has no capacity", "reservation-full"),
    ("Server.InternalError: Internal error on launch", "hardware"),
    ("KeyChanged: its agent shows another key than at first", "key-changed"),
    ("AgentRecordGone: the record of its agent is gone", "agent-record-gone"),
    ("Quota: count 5 is over what share acme may have at the same time (3)", "share-quota"),
    ("OverMax: count 9 is over the max of class small (8)", "over-max"),
    (
        "KeyTaken: acme/web run 42/default/1 was asked for before, Released at noon, and its record is in the history",
        "key-taken",
    ),
    ("LabelTaken: label 42 is that of acme/web run 42/default/1 until it is over", "label-taken"),
    ("Invalid: minCount: 3 is not within 1 to count (2)", "invalid-request"),
    ("LaunchFailed: it was refused: something new", "launch-refused"),
    ("it ended with reason boot-failed: boot-failed (its first boot failed)", "boot-failed"),
    ("it ended with reason registration-failed: …", "registration-failed"),
    ("it ended with reason threshold: threshold (it passed the deadline of its state)", "overdue"),
    ("Launches: 3 failures in a row", "launches-held-back"),
    ("DeadlinePassed: 0 of 1 machine ran at the deadline (1 is needed)", "not-in-time"),
];

#[test]
fn each_known_failure_is_known_by_its_own_words() {
    for (said, wanted) in SAID {
        let found: Vec<&str> = probable([*said]).iter().map(|one| one.cause.name).collect();
        assert_eq!(found, [*wanted], "{said}");
    }
}

#[test]
fn every_cause_is_known_by_some_words_and_no_two_have_one_name() {
    let known: BTreeSet<&str> = SAID.iter().map(|(_, name)| *name).collect();
    let all: BTreeSet<&str> = CAUSES.iter().map(|cause| cause.name).collect();
    assert_eq!(known, all);
    assert_eq!(all.len(), CAUSES.len());
    for cause in CAUSES {
        let signs = cause.signs.iter().flat_map(|parts| parts.iter());
        assert!(
            signs.clone().all(|part| *part == part.to_lowercase()),
            "{}: compared in small letters",
            cause.name
        );
    }
}

#[test]
fn a_cause_is_told_once_with_the_first_words_and_what_is_healthy_has_none() {
    let said = [
        "the server answers 404 Not Found",
        "2 of 2 machines are running",
        "the server answers 403 Forbidden",
    ];
    let found = probable(said);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].said, said[0]);
    assert!(probable(["Bound: launched by EC2", "claimed for demo/app 1", "registered", ""]).is_empty());
}

#[test]
fn that_an_agent_never_reported_comes_after_all_that_says_why() {
    let said = [
        "it is created, and its agent never reported yet",
        "powers off: first boot failed while it fetched the agent (1)",
    ];
    let names: Vec<&str> = probable(said).iter().map(|one| one.cause.name).collect();
    assert_eq!(names, ["agent-unreachable", "never-reported"]);
}
