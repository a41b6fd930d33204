"""boto3 makes the calls a yard makes and prints, as JSON, what it understood.

foreign.py ENDPOINT same|peer|short
"""

import json
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

NAME = "foreign-linux"


def client(endpoint):
    return boto3.client(
        "ec2",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"max_attempts": 0}),
    )


def code(call, **asked):
    """The error code a call is refused with; none when it is not."""
    try:
        call(**asked)
    except ClientError as refused:
        return refused.response["Error"]["Code"]
    return None


def template(ec2):
    image = ec2.describe_images()["Images"]
    data = {
        "ImageId": image[0]["ImageId"] if image else "ami-0123456789abcdef0",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": [{"Key": "by", "Value": "template"}]}
        ],
    }
    tags = [
        {
            "ResourceType": "launch-template",
            "Tags": [{"Key": "runyard:table", "Value": "foreign"}],
        }
    ]
    ec2.create_launch_template(
        LaunchTemplateName=NAME,
        VersionDescription="one",
        LaunchTemplateData=data,
        TagSpecifications=tags,
    )
    return data


def fleet(ec2, count=3, token="foreign-1"):
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    override = {"SubnetId": subnet, "InstanceType": "m7i.large"}
    tags = [
        {"Key": "runyard:table", "Value": "foreign"},
        {"Key": "runyard:launch", "Value": token},
    ]
    return ec2.create_fleet(
        Type="instant",
        ClientToken=token,
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "on-demand",
        },
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": NAME,
                    "Version": "$Default",
                },
                "Overrides": [override],
            }
        ],
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )


def ids(told):
    return [one for group in told["Instances"] for one in group["InstanceIds"]]


def listed(ec2):
    wanted = [{"Name": "tag:runyard:table", "Values": ["foreign"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=wanted)
    found = [r["Instances"] for page in pages for r in page["Reservations"]]
    return [one for some in found for one in some]


def same(ec2):
    data = template(ec2)
    data["EbsOptimized"] = True
    ec2.create_launch_template_version(
        LaunchTemplateName=NAME, VersionDescription="two", LaunchTemplateData=data
    )
    ec2.modify_launch_template(LaunchTemplateName=NAME, DefaultVersion="2")
    known = ec2.describe_launch_templates(LaunchTemplateNames=[NAME])["LaunchTemplates"][0]
    version = ec2.describe_launch_template_versions(
        LaunchTemplateName=NAME, Versions=["$Default"]
    )["LaunchTemplateVersions"][0]
    saying = version["LaunchTemplateData"]
    told = fleet(ec2)
    machines = ids(told)
    found = listed(ec2)
    ec2.create_tags(Resources=machines[:1], Tags=[{"Key": "late", "Value": "yes"}])
    tags = ec2.describe_instances(InstanceIds=machines[:1])["Reservations"][0]["Instances"][0]
    ended = ec2.terminate_instances(InstanceIds=machines)["TerminatingInstances"]
    gone = ec2.describe_instances(InstanceIds=machines)["Reservations"]
    return {
        "template": {
            "default": known["DefaultVersionNumber"],
            "latest": known["LatestVersionNumber"],
            "tags": known["Tags"],
            "description": version["VersionDescription"],
            "shutdown": saying["InstanceInitiatedShutdownBehavior"],
            "tokens": saying["MetadataOptions"]["HttpTokens"],
        },
        "fleet": {
            "machines": len(machines),
            "errors": told.get("Errors", []),
            "types": sorted({group["InstanceType"] for group in told["Instances"]}),
        },
        "listed": sorted(one["InstanceId"] for one in found) == sorted(machines),
        "states": sorted({one["State"]["Name"] for one in found}),
        "tags": sorted(
            tag["Key"] for tag in tags["Tags"] if not tag["Key"].startswith("aws:")
        ),
        "ended": sorted(one["InstanceId"] for one in ended) == sorted(machines),
        "gone": sorted({i["State"]["Name"] for r in gone for i in r["Instances"]}),
        "unknown id": code(ec2.terminate_instances, InstanceIds=["i-0123456789abcdef9"]),
        "unknown template": code(
            ec2.describe_launch_templates, LaunchTemplateNames=["nobody"]
        ),
        "name taken": code(
            ec2.create_launch_template, LaunchTemplateName=NAME, LaunchTemplateData=data
        ),
    }


def peer(ec2):
    template(ec2)
    first = ids(fleet(ec2))
    wanted = [{"Name": "tag:runyard:table", "Values": ["foreign"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=wanted)
    return {
        "replayed": ids(fleet(ec2)) == first,
        "mismatch": code(lambda: fleet(ec2, count=4)),
        "pages": sum(1 for _ in pages),
        "unknown id": code(ec2.describe_instances, InstanceIds=["i-0123456789abcdef9"]),
    }


def short(ec2):
    template(ec2)
    told = fleet(ec2)
    return {
        "machines": len(ids(told)),
        "codes": [error["ErrorCode"] for error in told["Errors"]],
    }


if __name__ == "__main__":
    part = {"same": same, "peer": peer, "short": short}[sys.argv[2]]
    print(json.dumps(part(client(sys.argv[1]))))
