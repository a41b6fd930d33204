# As the parameters of config/cloudformation.yaml, which say more.

variable "table_name" {
  description = "The table; also what marks machines as this yard's, and what the queues' names begin with."
  type        = string
  default     = "runyard"
  validation {
    condition     = can(regex("^[A-Za-z0-9_-]{3,40}$", var.table_name))
    error_message = "table_name takes 3 to 40 of A-Z, a-z, 0-9, _ and -."
  }
}

variable "classes" {
  description = "The classes to make queues for. One that is not listed gets its queues by `runyard apply`."
  type        = list(string)
  default     = ["linux-x64", "untrusted"]
}

variable "github_owner" {
  description = "The organisation or user whose workflows may ask for machines, spelt as GitHub spells it."
  type        = string
}

variable "github_oidc_provider" {
  description = "The ARN of the provider of token.actions.githubusercontent.com; `create` to make it; empty for no role of workflows."
  type        = string
  default     = ""
}

variable "github_owner_id" {
  description = "The owner's number: `gh api users/OWNER --jq .id`. Needed with github_oidc_provider."
  type        = string
  default     = ""
  validation {
    condition     = can(regex("^([0-9]{1,20})?$", var.github_owner_id))
    error_message = "github_owner_id is a number: see `gh api users/OWNER --jq .id`."
  }
}

variable "volume_key_arn" {
  description = "The key of the machines' volumes, where it is one of your own."
  type        = string
  default     = ""
}

variable "machine_fence" {
  description = "own-record, or any-record where DynamoDB refuses machines their own records (config/iam/README.md)."
  type        = string
  default     = "own-record"
  validation {
    condition     = contains(["own-record", "any-record"], var.machine_fence)
    error_message = "machine_fence is own-record or any-record."
  }
}

variable "launch_fence" {
  description = "template, or tags where EC2 does not say by which template a fleet launches (config/iam/README.md)."
  type        = string
  default     = "template"
  validation {
    condition     = contains(["template", "tags"], var.launch_fence)
    error_message = "launch_fence is template or tags."
  }
}

variable "instance_types" {
  description = "The types that the operator may launch, such as m7i.*; IAM refuses the others whatever a class or a request says."
  type        = list(string)
  default     = ["*"]
}

variable "pod_identity" {
  description = "Whether to make roles for the chart's service accounts by EKS Pod Identity."
  type        = bool
  default     = false
}

variable "jobs_webhook" {
  description = "Whether to make an address for GitHub's webhook, so that queued jobs get machines at once (docs/how-to/install.md). Anybody may send to it, which proves nothing to the operator, and each call has its price."
  type        = bool
  default     = false
}

variable "vpc_id" {
  description = "Where machines run, to make their security group; empty where you have one."
  type        = string
  default     = ""
}

variable "subnet_ids" {
  description = "The subnets of machines, told to `runyard init --stack-outputs`; the operator runs in them too."
  type        = list(string)
  default     = []
}

variable "route_table_ids" {
  description = "The route tables of those subnets, to reach DynamoDB by a gateway endpoint, which is free."
  type        = list(string)
  default     = []
}

variable "operator_image" {
  description = "The image of this repository's Dockerfile, to run the operator on Fargate; empty where it runs elsewhere, or comes from operator_url."
  type        = string
  default     = ""
}

variable "operator_url" {
  description = "In place of an image: where the operator's tasks fetch the released program runyard, https, without a credential. It runs in helper_image."
  type        = string
  default     = ""
}

variable "operator_sha256" {
  description = "Its SHA-256."
  type        = string
  default     = ""
}

variable "operator_architecture" {
  description = "What the operator's image or program was built for: X86_64 or ARM64."
  type        = string
  default     = "X86_64"
}

variable "operator_public_ip" {
  description = "true where the subnets have no NAT gateway and route to the internet themselves."
  type        = bool
  default     = false
}

variable "helper_image" {
  description = "Any image with a shell; it hands GitHub's credential to the operator as a file. With operator_url the operator runs in it, and it needs curl, sha256sum and the certificates of authorities."
  type        = string
  default     = "public.ecr.aws/amazonlinux/amazonlinux:2023"
}

variable "github_app_id" {
  description = "The GitHub App's id; empty where the secret holds a token."
  type        = string
  default     = ""
}

variable "github_secret_arn" {
  description = "The secret of Secrets Manager that holds the App's private key (PEM), or a token."
  type        = string
  default     = ""
}

variable "github_scope" {
  description = "Where runners are registered: repository or organization."
  type        = string
  default     = "repository"
  validation {
    condition     = contains(["repository", "organization"], var.github_scope)
    error_message = "github_scope is repository or organization."
  }
}

variable "runner_url" {
  description = "The runner package that machines fetch, https."
  type        = string
  default     = ""
}

variable "runner_sha256" {
  description = "Its SHA-256."
  type        = string
  default     = ""
}

variable "runner_version" {
  description = "Its version."
  type        = string
  default     = ""
}

variable "runner_url_arm64" {
  description = "The runner package of machines of arm64, of the same version."
  type        = string
  default     = ""
}

variable "runner_sha256_arm64" {
  description = "Its SHA-256."
  type        = string
  default     = ""
}

variable "runner_follow" {
  description = "pin, or latest where machines get the newest package of GitHub's list by themselves (docs/runner-versions.md)."
  type        = string
  default     = "pin"
  validation {
    condition     = contains(["pin", "latest"], var.runner_follow)
    error_message = "runner_follow is pin or latest."
  }
}

variable "agent_url" {
  description = "Where machines fetch runyard-agent, https; empty where their image has it."
  type        = string
  default     = ""
}

variable "agent_sha256" {
  description = "Its SHA-256."
  type        = string
  default     = ""
}

variable "agent_url_arm64" {
  description = "Where machines of arm64 fetch runyard-agent."
  type        = string
  default     = ""
}

variable "agent_sha256_arm64" {
  description = "Its SHA-256."
  type        = string
  default     = ""
}
