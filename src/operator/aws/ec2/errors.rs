//! Maps EC2's error codes to what the caller can do about them. The codes are those of the EC2 API reference ("Error
//! codes for the Amazon EC2 API") and those that `CreateFleet` lists among its errors; no other module contains them.

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};

use crate::ports::ComputeError;
use crate::store::failure::Failure;

/// The meaning of an error code for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Not available now, not offered there, or over a quota of machines: retry later, or with another kind.
    NoCapacity,
    /// Too many calls.
    Throttled,
    /// Refused because of credentials, permissions, or the class's spec.
    Refused,
    /// The token was used for a different call.
    TokenSpent,
    /// No such instance (any more, or yet).
    NoSuchInstance,
    /// This instance must not be terminated, which does not concern others.
    Protected,
    /// No such launch template or version.
    NoSuchTemplate,
    /// Another process created the launch template meanwhile.
    TemplateExists,
    /// The call may or may not have been applied.
    Unknown,
}

/// Returns the meaning of a code with this HTTP status.
#[expect(clippy::too_many_lines, reason = "a table: one line for each error code of EC2")]
pub(super) fn meaning(code: &str, status: u16) -> Meaning {
    match code {
        "InsufficientAddressCapacity"
        | "InsufficientCapacity"
        | "InsufficientCapacityOnHost"
        | "InsufficientCapacityOnOutpost"
        | "InsufficientFreeAddressesInSubnet"
        | "InsufficientHostCapacity"
        | "InsufficientInstanceCapacity"
        | "InsufficientReservedInstanceCapacity"
        | "InsufficientVolumeCapacity"
        | "InstanceLimitExceeded"
        | "MaxFleetCountExceeded"
        | "MaxSpotInstanceCountExceeded"
        | "ReservationCapacityExceeded"
        | "SpotMaxPriceTooLow"
        | "UnfulfillableCapacity"
        | "Unsupported"
        | "VcpuLimitExceeded" => Meaning::NoCapacity,
        "EC2ThrottledException"
        | "RequestLimitExceeded"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "Throttling"
        | "ThrottlingException" => Meaning::Throttled,
        "AuthFailure"
        | "AccessDenied"
        | "AccessDeniedException"
        | "Blocked"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidAMIID.Malformed"
        | "InvalidAMIID.NotFound"
        | "InvalidAMIID.Unavailable"
        | "InvalidBlockDeviceMapping"
        | "InvalidClientTokenId"
        | "InvalidFleetConfig"
        | "InvalidFleetConfiguration"
        | "InvalidGroup.NotFound"
        | "InvalidInstanceType"
        | "InvalidKeyPair.NotFound"
        | "InvalidLaunchTemplateId.Malformed"
        | "InvalidLaunchTemplateName.MalformedException"
        | "InvalidParameter"
        | "InvalidParameterCombination"
        | "InvalidParameterDependency"
        | "InvalidParameterValue"
        | "InvalidSecurityGroupID.NotFound"
        | "InvalidSubnet"
        | "InvalidSubnetID.NotFound"
        | "MalformedQueryString"
        | "MaxIOPSLimitExceeded"
        | "MissingAuthenticationToken"
        | "MissingParameter"
        | "NetworkInterfaceLimitExceeded"
        | "OptInRequired"
        | "PendingVerification"
        | "SignatureDoesNotMatch"
        | "TagLimitExceeded"
        | "UnauthorizedOperation"
        | "UnauthorizedOperation.TaggingPermission"
        | "UnknownParameter"
        | "UnsupportedOperation"
        | "VolumeLimitExceeded" => Meaning::Refused,
        "IdempotentInstanceTerminated" | "IdempotentParameterMismatch" => Meaning::TokenSpent,
        "InvalidInstanceID" | "InvalidInstanceID.Malformed" | "InvalidInstanceID.NotFound" => {
            Meaning::NoSuchInstance
        }
        "IncorrectInstanceState" | "OperationNotPermitted" => Meaning::Protected,
        "InvalidLaunchTemplateId.NotFound"
        | "InvalidLaunchTemplateId.NotFoundException"
        | "InvalidLaunchTemplateId.VersionNotFound"
        | "InvalidLaunchTemplateName.NotFoundException" => Meaning::NoSuchTemplate,
        "InvalidLaunchTemplateName.AlreadyExistsException" => Meaning::TemplateExists,
        "InternalError" | "InternalFailure" | "RequestExpired" | "ServiceUnavailable" | "Unavailable" => {
            Meaning::Unknown
        }
        _ => match status {
            429 | 503 => Meaning::Throttled,
            400..=499 if !code.is_empty() => Meaning::Refused,
            401 | 403 | 407 => Meaning::Refused,
            _ => Meaning::Unknown,
        },
    }
}

/// Returns whether a machine whose state has this reason never began, for a reason that a person must fix: keys,
/// snapshots, limits of volumes. The other codes with `Client.` are shutdowns, by the machine itself or by a call (EC2
/// API reference, "StateReason").
pub(super) fn never_began(code: &str) -> bool {
    let off =
        ["Client.InstanceInitiatedShutdown", "Client.UserInitiatedShutdown", "Client.UserInitiatedHibernate"];
    code.starts_with("Client.") && !off.contains(&code)
}

/// Returns whether a dry run's error means that the call would have succeeded.
pub(super) fn would_succeed(code: &str) -> bool {
    code == "DryRunOperation"
}

/// Returns the fix for a dry run that was refused with this code; `None` if the code is not about the call.
pub(super) fn remedy(code: &str) -> Option<&'static str> {
    Some(match code {
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "UnauthorizedOperation.TaggingPermission" => {
            "give whoever runs this the operator's policy (config/iam/operator.json) or run it in the operator's name; a \
             service control policy of your organisation may forbid it too"
        }
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted" => {
            "`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`"
        }
        "AuthFailure"
        | "InvalidClientTokenId"
        | "ExpiredToken"
        | "SignatureDoesNotMatch"
        | "OptInRequired" => {
            "`aws sts get-caller-identity` says who asks; log in again, or name another AWS_PROFILE"
        }
        "InvalidAMIID.Malformed" | "InvalidAMIID.NotFound" | "InvalidAMIID.Unavailable" => {
            "name an image of this region that this account may use in launch.ami"
        }
        "InvalidSubnet" | "InvalidSubnetID.NotFound" => {
            "name subnets of this account and region in launch.subnetIds"
        }
        "InvalidGroup.NotFound" | "InvalidSecurityGroupID.NotFound" => {
            "name security groups of the subnets' VPC in launch.securityGroupIds"
        }
        "InvalidBlockDeviceMapping" => "raise launch.volumeGiB to what the image's root volume has",
        "InstanceLimitExceeded" | "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" => {
            "`aws service-quotas request-service-quota-increase --service-code ec2 --quota-code CODE --desired-value N`"
        }
        "Unsupported" | "UnsupportedOperation" => {
            "allow other types (allowedInstanceTypes), or name another zone's subnet"
        }
        code => match meaning(code, 400) {
            Meaning::Refused if !code.is_empty() => {
                "mend what EC2 names: a field of the class's launch, or its template"
            }
            Meaning::NoSuchTemplate => "run `runyard init --config FILE`, which makes the template",
            Meaning::Refused
            | Meaning::NoCapacity
            | Meaning::Throttled
            | Meaning::TokenSpent
            | Meaning::NoSuchInstance
            | Meaning::Protected
            | Meaning::TemplateExists
            | Meaning::Unknown => return None,
        },
    })
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) meaning: Meaning,
    /// EC2's code; empty if there was no response of EC2 itself.
    pub(super) code: String,
    /// Code and message, for people.
    pub(super) text: String,
}

impl CallError {
    /// Converts an SDK error of any call.
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match Failure::of(error) {
            Failure::NoAnswer(text) => Self { meaning: Meaning::Unknown, code: String::new(), text },
            Failure::NotSent(text) => Self { meaning: Meaning::Refused, code: String::new(), text },
            Failure::Answered { code, status, message } => {
                let text = if code.is_empty() {
                    format!("HTTP {status}: {message}")
                } else {
                    format!("{code}: {message}")
                };
                Self { meaning: meaning(&code, status), code, text }
            }
        }
    }
}

impl From<CallError> for ComputeError {
    fn from(error: CallError) -> Self {
        match error.meaning {
            Meaning::NoCapacity => Self::NoCapacity(error.text),
            Meaning::Throttled => Self::Throttled,
            Meaning::TokenSpent => Self::TokenSpent(error.text),
            // The template existed a moment ago; the next call looks it up again.
            Meaning::NoSuchTemplate | Meaning::TemplateExists | Meaning::Unknown => Self::Unknown(error.text),
            Meaning::Refused | Meaning::NoSuchInstance | Meaning::Protected => Self::Refused(error.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_means_the_same_whatever_its_status() {
        for (code, wanted) in [
            ("InsufficientInstanceCapacity", Meaning::NoCapacity),
            ("MaxSpotInstanceCountExceeded", Meaning::NoCapacity),
            ("InsufficientFreeAddressesInSubnet", Meaning::NoCapacity),
            ("RequestLimitExceeded", Meaning::Throttled),
            ("UnauthorizedOperation", Meaning::Refused),
            ("VcpuLimitExceeded", Meaning::NoCapacity),
            ("InstanceLimitExceeded", Meaning::NoCapacity),
            ("InvalidAMIID.NotFound", Meaning::Refused),
            ("IdempotentParameterMismatch", Meaning::TokenSpent),
            ("InvalidInstanceID.NotFound", Meaning::NoSuchInstance),
            ("OperationNotPermitted", Meaning::Protected),
            ("InvalidLaunchTemplateName.NotFoundException", Meaning::NoSuchTemplate),
            ("InternalError", Meaning::Unknown),
        ] {
            for status in [200, 400, 403, 500, 503] {
                assert_eq!(meaning(code, status), wanted, "{code} {status}");
            }
        }
    }

    #[test]
    fn a_code_nobody_knows_is_judged_by_its_status() {
        for (code, status, wanted) in [
            ("NewRule", 400, Meaning::Refused),
            ("NewRule", 403, Meaning::Refused),
            ("NewRule", 500, Meaning::Unknown),
            ("", 403, Meaning::Refused),
            ("", 400, Meaning::Unknown),
            ("", 404, Meaning::Unknown),
            ("", 429, Meaning::Throttled),
            ("", 503, Meaning::Throttled),
            ("", 502, Meaning::Unknown),
            ("", 200, Meaning::Unknown),
        ] {
            assert_eq!(meaning(code, status), wanted, "{code} {status}");
        }
    }
}
