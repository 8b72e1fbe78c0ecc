"""resnet_small of ampkit's zoo: same modules, names and initial weights."""

from torch import nn


def convolution(inputs, outputs, kernel, stride):
    return nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, bias=False
    )


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        downsample = None
        if stride != 1 or inputs != outputs:
            # Drawn first, registered last, as in torchvision.
            downsample = nn.Sequential(
                convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )
        self.conv1 = convolution(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = convolution(outputs, outputs, 3, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class SmallResNet(nn.Module):
    def __init__(self, classes=10, width=32):
        super().__init__()
        self.conv1 = convolution(1, width, 3, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(self.pool(x).flatten(1))
