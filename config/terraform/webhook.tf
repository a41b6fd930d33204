# The address of GitHub's webhook of queued jobs: a body goes into the queue as it is.

resource "aws_apigatewayv2_api" "jobs" {
  count         = var.jobs_webhook ? 1 : 0
  name          = "${var.table_name}-jobs"
  protocol_type = "HTTP"
}

resource "aws_iam_role" "jobs" {
  count       = var.jobs_webhook ? 1 : 0
  name_prefix = "${substr(var.table_name, 0, 24)}-jobs-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "apigateway.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "jobs" {
  count  = var.jobs_webhook ? 1 : 0
  name   = "runyard"
  role   = aws_iam_role.jobs[0].id
  policy = local.documents["webhook"]
}

resource "aws_apigatewayv2_integration" "jobs" {
  count                  = var.jobs_webhook ? 1 : 0
  api_id                 = aws_apigatewayv2_api.jobs[0].id
  integration_type       = "AWS_PROXY"
  integration_subtype    = "SQS-SendMessage"
  payload_format_version = "1.0"
  credentials_arn        = aws_iam_role.jobs[0].arn
  request_parameters = {
    QueueUrl    = aws_sqs_queue.jobs.url
    MessageBody = "$request.body"
  }
}

resource "aws_apigatewayv2_route" "jobs" {
  count     = var.jobs_webhook ? 1 : 0
  api_id    = aws_apigatewayv2_api.jobs[0].id
  route_key = "POST /github"
  target    = "integrations/${aws_apigatewayv2_integration.jobs[0].id}"
}

# What a flood may cost; of the calls beyond, which are refused, GitHub's are lost too.
resource "aws_apigatewayv2_stage" "jobs" {
  count       = var.jobs_webhook ? 1 : 0
  api_id      = aws_apigatewayv2_api.jobs[0].id
  name        = "$default"
  auto_deploy = true
  default_route_settings {
    throttling_rate_limit  = 20
    throttling_burst_limit = 200
  }
}
