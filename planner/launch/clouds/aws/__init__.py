"""Amazon EC2: on demand and spot, through boto3, which is imported only when a call is sent."""
