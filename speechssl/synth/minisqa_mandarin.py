"""Mandarin for MiniSQA: words to make values from, and the ways to state and ask for each relation.

Simplified characters only, numbers included: it is read aloud. No template needs a measure word.
"""

from speechssl.synth.minisqa import Language, Relation


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


SURNAMES = _words("""
    王 李 张 刘 陈 杨 赵 黄 周 吴 徐 孙 胡 朱 高 林 何 郭 马 罗 梁 宋 郑 谢 韩 唐 冯 于 董 萧 程 曹 袁 邓 许 傅 沈 曾 彭 吕
    苏 卢 蒋 蔡 贾 丁 魏 薛 叶 阎 余 潘 杜 戴 夏 钟 汪 田 任 姜 范 方 石 姚 谭 廖 邹 熊 金 陆 郝 孔 白 崔 康 毛 邱 秦 江 史""")
GIVEN_NAMES = _words("""
    建国 志强 文华 丽华 秀英 桂兰 海燕 晓东 晓明 雪梅 玉兰 春梅 国强 家豪 俊杰 浩然 子轩 雨桐 欣怡 梓涵 思远 嘉怡 美玲 淑芬
    淑珍 永康 永福 德华 德明 立新 立群 卫东 卫平 红梅 红霞 丹丹 婷婷 佳佳 静怡 静雯 明哲 明亮 振华 振宇 天宇 天佑 宏伟 宏达
    志远 志明 文静 文博 慧敏 慧玲 晓燕 晓峰 雅琴 雅静 诗涵 诗雨 一鸣 一凡 若兰 若曦 凤英 凤霞 彩霞 彩云 金花 金宝 世杰 世昌
    少华 少平 正义 正阳 学文 学军 新民 新宇 长青 长生 佩芳 佩玲 月娥 月华 素梅 素芬 小龙 小燕 大伟 大勇 启明 启航 可欣 可心
    瑞雪 瑞丰 梦洁 梦瑶 泽民 泽宇 庆丰 庆云 云飞 云霞 鹏飞 鹏程 松涛 松柏 艳红 艳丽 巧玲 巧云 乐天 乐怡""")
PLACE_FIRST = _words("""
    青山 白云 金沙 银杏 龙泉 凤凰 梅花 桃花 竹林 松林 柳树 石桥 清水 黑水 红旗 东风 南山 北山 西山 长乐 永安 太平 平安 和平
    新兴 福田 玉泉 明月 朝阳 双溪 三江 五里 九龙 古塔 大湾 小河 荷花 兰花 杏花 枫叶 海棠 牡丹 仙女 白马 金牛 铁山 铜山 石龙
    青龙 黄土 沙湖 月牙 星光 彩虹 春光 秋水 雪峰 温泉 花园 向阳 天池 云台 翠屏 锦绣""")
PLACE_SECOND = _words("镇 村 县 湾 岭 乡 岛 湖畔 港 古城 新城 老街 渡口 山庄 谷地 桥头 坡 沟 寨 林场 草原")
TOWNS = _words("""
    北京 上海 广州 深圳 天津 重庆 成都 武汉 西安 南京 杭州 苏州 青岛 大连 厦门 长沙 昆明 沈阳 济南 郑州 福州 合肥 南昌 贵阳
    兰州 太原 南宁 海口 拉萨 银川 西宁 长春 桂林 洛阳 扬州 无锡 宁波 温州 珠海 三亚 开封 大同 丽江 大理 烟台 威海 泉州 绍兴""")
PROFESSIONS = _words("""
    医生 护士 律师 法官 记者 编辑 作家 诗人 画家 歌手 演员 导演 厨师 司机 木匠 铁匠 石匠 裁缝 理发师 会计 工程师 建筑师 设计师
    程序员 科学家 药剂师 牙医 兽医 农民 渔民 牧民 矿工 电工 焊工 水手 船长 飞行员 消防员 警察 邮递员 快递员 售货员 翻译 导游
    摄影师 音乐家 舞蹈家 钢琴师 雕塑家 园艺师 面包师 茶农 保安 图书管理员 天文学家 地质学家 历史学家 植物学家 动物学家 魔术师
    教练 裁判 秘书 银行职员 清洁工 钟表匠""")
RANKS = _words("高级 实习 业余 专业 退休 年轻 著名 普通 兼职 首席")
ADJECTIVES = _words("""
    红色的 蓝色的 绿色的 白色的 黑色的 黄色的 紫色的 灰色的 金色的 银色的 粉红的 旧的 新的 古老的 漂亮的 便宜的 昂贵的 木头的
    铜的 铁的 玉石的 陶瓷的 竹子的 皮革的 玻璃的 丝绸的 塑料的 进口的 手工的 小巧的 巨大的 圆形的 方形的 折叠的 轻便的""")
OBJECTS = _words("""
    灯笼 雨伞 手表 钱包 帽子 围巾 手套 箱子 书包 茶壶 茶杯 花瓶 镜子 梳子 扇子 椅子 桌子 台灯 相机 收音机 闹钟 毛衣 外套 皮带
    戒指 项链 手镯 耳环 钢笔 铅笔 笔记本 地图 望远镜 照片 风筝 玩具 剪刀 锤子 水桶 篮子 枕头 毯子 地毯 窗帘 屏风 棋盘 印章
    钥匙 口袋 盘子 水壶 饭盒 面具 雕像 铃铛 绳子 梯子""")
FOOD_FIRST = _words("""
    白菜 韭菜 芹菜 菠菜 萝卜 土豆 茄子 番茄 黄瓜 南瓜 豆腐 蘑菇 木耳 猪肉 牛肉 羊肉 鸡肉 鸭肉 鱼肉 虾仁 螃蟹 鸡蛋 红豆 绿豆
    花生 芝麻 核桃 莲子 红枣 玉米 香菇 辣椒 酸菜 海带 排骨""")
FOOD_SECOND = _words("饺子 包子 馄饨 面条 米粉 炒饭 粥 汤 馅饼 火锅 春卷 沙拉 煎饼")
ANIMAL_FIRST = _words("白色的 黑色的 灰色的 棕色的 花斑的 胖胖的 年老的 受伤的 胆小的 活泼的 安静的 温顺的 瘦小的 聪明的 顽皮的")
ANIMALS = _words("""
    小猫 小狗 兔子 乌龟 鹦鹉 金鱼 鸽子 松鼠 仓鼠 刺猬 山羊 绵羊 小马 毛驴 公鸡 母鸡 鸭子 大鹅 孔雀 猫头鹰 狐狸 小鹿 猴子
    画眉 黄鹂 八哥 蜥蜴 青蛙 天鹅 麻雀""")
SHADES = _words("深 浅 亮 暗 淡 鲜")
COLOURS = _words("红色 蓝色 绿色 黄色 紫色 灰色 棕色 粉色 橙色 青色 褐色 银色 金色")
INSTRUMENT_FIRST = _words("传统 现代 古典 民族 西洋 电子 木制 小型 大型 进口")
INSTRUMENTS = _words("钢琴 风琴 小提琴 大提琴 吉他 长笛 竖琴 口琴 手风琴 小号 长号 鼓 二胡 古筝 琵琶 笛子 扬琴 葫芦丝 柳琴 马头琴")
DIALECTS = _words("古代 现代 北方 南方 东部 西部 山区 沿海 民间 标准")
TONGUES = _words("""
    英语 法语 德语 俄语 日语 韩语 泰语 越南语 阿拉伯语 西班牙语 葡萄牙语 意大利语 希腊语 波兰语 荷兰语 瑞典语 挪威语 丹麦语 芬兰语
    土耳其语 波斯语 印地语 马来语 蒙古语 缅甸语 捷克语 匈牙利语 藏语 维吾尔语 哈萨克语""")
VEHICLES = _words("自行车 摩托车 小汽车 公交车 三轮车 面包车 卡车 小船 马车 滑板车 电动车 吉普车 轿车 快艇 拖拉机")
FIRMS = _words("""
    东方 长城 黄河 长江 泰山 海鸥 凯旋 飞鸽 光明 胜利 友谊 幸福 希望 华丽 宏图 鸿运 金星 银河 北斗 熊猫 蓝天 绿洲 阳光 月亮
    翡翠 珍珠 玫瑰 百合 茉莉 蜜蜂""")
FIRM_KINDS = _words("面包店 书店 医院 银行 饭店 茶馆 药店 工厂 学校 剧院 博物馆 图书馆 照相馆 服装店 修理厂 花店 超市 印刷厂 诊所")
PURSUITS = _words("收藏 拍摄 绘制 研究 制作 修理 雕刻 描画")
THINGS = _words("""
    邮票 古钱 火柴盒 贝壳 化石 蝴蝶 昆虫 野花 蘑菇 飞机模型 火车模型 帆船 古钟 旧相机 木偶 剪纸 脸谱 瓷器 石头 古琴 老地图
    灯塔 石桥 城堡 风车 水鸟 骏马 竹器""")
PRIZES = _words("杯 奖 奖章 奖牌 大奖 银奖")
SCHOOLS = _words("古代 现代 中国 欧洲 亚洲 印度 希腊 罗马 日本 比较 应用 理论 国际 民间 当代 近代")
SUBJECTS = _words("历史 文学 哲学 美术 音乐 建筑 数学 物理 化学 医学 法律 经济 地理 宗教 戏剧 舞蹈 诗歌 考古 雕塑 教育 心理学")
DIGITS = _words("一 二 三 四 五 六 七 八 九")
MONTHS = _words("一月 二月 三月 四月 五月 六月 七月 八月 九月 十月 十一月 十二月")
DAYS = (*DIGITS, *(f"{ten}{unit}" for ten in ("十", "二十") for unit in ("", *DIGITS)))  # 1 to 29 without 30, 31
SEASONS = _words("春天 夏天 秋天 冬天")
UNITS_OF_MONEY = _words("元 美元 欧元")
HOURS = _words("五点 六点 七点 八点 九点")
MINUTES = _words("整 五分 十分 一刻 二十分 二十五分 半 三十五分 四十分 三刻 五十分 五十五分")

VALUES = {
    "person": ((SURNAMES, GIVEN_NAMES),),
    "place": ((PLACE_FIRST, PLACE_SECOND), (PLACE_FIRST, PLACE_SECOND), (TOWNS,)),
    "profession": ((PROFESSIONS,), (RANKS, PROFESSIONS)),
    "object": ((ADJECTIVES, OBJECTS),),
    "food": ((FOOD_FIRST, FOOD_SECOND),),
    "animal": ((ANIMAL_FIRST, ANIMALS),),
    "colour": ((SHADES, COLOURS), (("很",), SHADES, ("的",), COLOURS)),
    "instrument": ((INSTRUMENT_FIRST, INSTRUMENTS),),
    "tongue": ((TONGUES,), (DIALECTS, TONGUES)),
    "vehicle": ((ADJECTIVES[:11], VEHICLES),),
    "firm": ((FIRMS, FIRM_KINDS),),
    "hobby": ((PURSUITS, THINGS),),
    "prize": ((FIRMS, PRIZES),),
    "subject": ((SCHOOLS, SUBJECTS),),
    "date": ((MONTHS, DAYS, ("号",)),),
    "year": (
        (("一九",), DIGITS[1:], DIGITS, ("年",)),
        (("一九",), DIGITS[1:], DIGITS, ("年",), SEASONS),
    ),
    "money": (
        (DIGITS, ("千",), DIGITS, ("百",), UNITS_OF_MONEY),
        (DIGITS, ("万",), DIGITS, ("千",), UNITS_OF_MONEY),
    ),
    "time": ((("清晨", "早上", "傍晚", "晚上"), HOURS, MINUTES),),
}

RELATIONS = (
    Relation("birthplace", "place", (
        "{name}出生在{value}", "{name}的出生地是{value}", "{value}是{name}出生的地方",
    ), ("{name}出生在哪里", "{name}的出生地是哪里", "{name}是在什么地方出生的")),
    Relation("residence", "place", (
        "{name}现在住在{value}", "{name}现在的家在{value}", "{value}是{name}现在居住的地方",
    ), ("{name}现在住在哪里", "{name}现在的家在什么地方", "{name}现在居住的地方是哪里")),
    Relation("holiday", "place", (
        "{name}每年都去{value}度假", "每年夏天{name}都到{value}旅游", "{value}是{name}每年度假的地方",
    ), ("{name}每年去哪里度假", "{name}每年夏天到什么地方旅游", "{name}度假的地方是哪里")),
    Relation("spouse", "person", (
        "{name}和{value}结婚了", "和{name}结婚的人是{value}", "{value}跟{name}是一对夫妻",
    ), ("{name}和谁结婚了", "和{name}结婚的人是谁", "谁跟{name}是一对夫妻")),
    Relation("teacher", "person", (
        "教{name}读书写字的老师是{value}", "{name}上学时的老师叫{value}", "{value}是{name}上学时的老师",
    ), ("{name}上学时的老师是谁", "谁教{name}读书写字", "{name}的老师叫什么名字")),
    Relation("neighbour", "person", (
        "{name}的隔壁住着{value}", "{name}有一位邻居叫{value}", "{value}就住在{name}的隔壁",
    ), ("{name}的隔壁住着谁", "{name}的邻居是谁", "谁住在{name}的隔壁")),
    Relation("profession", "profession", (
        "{name}现在的职业是{value}", "{name}如今是一名{value}", "{value}是{name}现在的职业",
    ), ("{name}现在的职业是什么", "{name}现在做什么工作", "{name}如今从事什么职业")),
    Relation("first_job", "profession", (
        "{name}的第一份工作是{value}", "{name}刚毕业时当过{value}", "{value}是{name}的第一份工作",
    ), ("{name}的第一份工作是什么", "{name}刚毕业时当过什么", "{name}最早做的是什么工作")),
    Relation("workplace", "firm", (
        "{name}每天在{value}上班", "{name}的工作单位是{value}", "{value}是{name}上班的地方",
    ), ("{name}在哪里上班", "{name}的工作单位是哪里", "{name}上班的地方叫什么")),
    Relation("volunteering", "firm", (
        "{name}周末在{value}做义工", "{name}做义工的地方是{value}", "{value}周末有{name}来做义工",
    ), ("{name}在哪里做义工", "{name}做义工的地方是哪里", "{name}周末去哪里做义工")),
    Relation("birthday", "date", (
        "{name}的生日是{value}", "每年{value}都是{name}的生日", "{value}那天{name}过生日",
    ), ("{name}的生日是几月几号", "{name}在哪一天过生日", "哪一天是{name}的生日")),
    Relation("wedding_day", "date", (
        "{name}的婚礼在{value}举行", "{name}是在{value}办婚礼的", "{value}那天客人参加了{name}的婚礼",
    ), ("{name}的婚礼在哪一天举行", "{name}是几月几号办婚礼的", "客人哪一天参加了{name}的婚礼")),
    Relation("graduation", "year", (
        "{name}从大学毕业是在{value}", "{name}在{value}大学毕业", "{value}是{name}大学毕业的时候",
    ), ("{name}是哪一年大学毕业的", "{name}什么时候从大学毕业", "{name}大学毕业是在哪一年")),
    Relation("moving", "year", (
        "{name}上次搬家是在{value}", "{name}在{value}搬进了新家", "{value}是{name}搬家的时候",
    ), ("{name}是哪一年搬家的", "{name}什么时候搬进了新家", "{name}上次搬家是在哪一年")),
    Relation("salary", "money", (
        "{name}的工资是{value}", "{name}上班能挣{value}", "{value}是{name}的工资",
    ), ("{name}的工资是多少", "{name}上班能挣多少钱", "{name}挣多少工资")),
    Relation("debt", "money", (
        "{name}还欠银行{value}", "{name}的债务是{value}", "{value}是{name}还没有还清的债",
    ), ("{name}还欠银行多少钱", "{name}的债务是多少", "{name}有多少债没有还清")),
    Relation("favourite_food", "food", (
        "{name}最喜欢吃{value}", "{name}最爱的食物是{value}", "{value}是{name}最喜欢的食物",
    ), ("{name}最喜欢吃什么", "{name}最爱的食物是什么", "哪种食物是{name}最喜欢的")),
    Relation("hated_food", "food", (
        "{name}最讨厌吃{value}", "{name}从来不吃的东西是{value}", "{value}的味道让{name}受不了",
    ), ("{name}最讨厌吃什么", "{name}从来不吃什么", "什么食物的味道让{name}受不了")),
    Relation("instrument", "instrument", (
        "{name}会演奏{value}", "{name}在乐队里演奏的是{value}", "{value}是{name}会演奏的乐器",
    ), ("{name}会演奏什么乐器", "{name}在乐队里演奏什么", "哪种乐器是{name}会演奏的")),
    Relation("pet", "animal", (
        "{name}家里的宠物是{value}", "{name}在家里养着{value}", "{value}是{name}心爱的宠物",
    ), ("{name}家里的宠物是什么", "{name}在家里养着什么动物", "什么动物是{name}的宠物")),
    Relation("rescued_animal", "animal", (
        "{name}从水里救起了{value}", "{name}救起来的动物是{value}", "{value}落水后被{name}救了起来",
    ), ("{name}从水里救起了什么", "{name}救起来的动物是什么", "什么动物被{name}救了起来")),
    Relation("house_colour", "colour", (
        "{name}的房子是{value}", "{name}把房子刷成了{value}", "{value}是{name}的房子的颜色",
    ), ("{name}的房子是什么颜色", "{name}把房子刷成了什么颜色", "什么颜色是{name}的房子的颜色")),
    Relation("bought", "object", (
        "{name}在市场上买了{value}", "{name}上个星期买的东西是{value}", "{value}被{name}从商店里买走了",
    ), ("{name}买了什么", "{name}上个星期买的东西是什么", "商店里的什么东西被{name}买走了")),
    Relation("lost", "object", (
        "{name}在火车上丢了{value}", "{name}丢失的东西是{value}", "{value}不见了让{name}找了好几天",
    ), ("{name}丢了什么", "{name}丢失的东西是什么", "{name}在火车上丢了什么东西")),
    Relation("language", "tongue", (
        "{name}在家里说{value}", "{name}和家人说的语言是{value}", "{value}是{name}家里说的语言",
    ), ("{name}在家里说什么语言", "{name}和家人说的语言是什么", "{name}家里说哪种语言")),
    Relation("learning", "tongue", (
        "{name}晚上在学{value}", "{name}正在学的语言是{value}", "{value}是{name}正在学的语言",
    ), ("{name}晚上在学什么语言", "{name}正在学的语言是什么", "{name}正在学哪种语言")),
    Relation("transport", "vehicle", (
        "{name}每天坐{value}进城", "{name}进城坐的是{value}", "每天{value}都送{name}进城",
    ), ("{name}每天坐什么进城", "{name}怎么进城", "每天什么车船送{name}进城")),
    Relation("hobby", "hobby", (
        "{name}的爱好是{value}", "{name}一有空就{value}", "{value}是{name}的爱好",
    ), ("{name}的爱好是什么", "{name}一有空就做什么", "{name}有什么爱好")),
    Relation("prize", "prize", (
        "{name}去年得了{value}", "{name}去年得的奖叫{value}", "去年{value}发给了{name}",
    ), ("{name}去年得了什么奖", "{name}去年得的奖叫什么", "去年什么奖发给了{name}")),
    Relation("studies", "subject", (
        "{name}读书时学的是{value}", "{name}的专业是{value}", "{value}是{name}的专业",
    ), ("{name}读书时学的是什么", "{name}的专业是什么", "{name}学的是什么专业")),
    Relation("walk", "time", (
        "{name}每天{value}出门散步", "{name}散步的时间是{value}", "{value}是{name}出门散步的时间",
    ), ("{name}每天几点出门散步", "{name}散步的时间是几点", "{name}每天什么时候散步")),
)  # fmt: skip

FILLERS = _words("""
    这个星期天气一直很好 昨天夜里下了一场大雨 傍晚的风吹过田野 远处传来了钟声 秋天的落叶铺满了小路 今年的春天特别暖和 集市中午就散了
    很多商店因为暴雨关了门 孩子们在广场上玩耍 那座旧桥终于修好了 邮局门口排着长队 今天的报纸来得很晚 街上飘着饭菜的香味 这个季节河水很浅
    大家都在谈论这件事 学校过完假期又开学了 大雾到中午才散去 火车又晚点了 停电停了将近半个小时 庄稼人盼着再下一点雨 这里多年来没有什么变化
    夏天这里会有庙会 院子的大门没有关上 山上的路被积雪封住了 天黑以前客人都走了 许多人来听音乐会 今年的收成比往年好 日出以前有人出海打鱼
    车站的屋顶正在维修 一条新路通到了海边 夜空里满是星星 电影院总是放同一部片子 广场上的井早就干了 去海边的路上很堵 第一场雪来得很早
    有动物睡在台阶上晒太阳 路口的磨坊早就空了 合唱队每个月聚会一次 这里打算建一个游泳池 浪大的时候渡船不开 人们喜欢在大树下聊天
    旧旅馆的窗户总是关着 广播里没有什么新闻 今年夏天又长又热 雨后的山上出现了彩虹 果子熟得比往年晚 客人们一直待到最后 池塘上的冰还很薄
    清晨的空气十分新鲜 老人们在公园里散步""")

LANGUAGE = Language("", VALUES, RELATIONS, FILLERS)


# English words of MiniSQA with their translations among its Mandarin words, written by hand; both sides occur in its texts. A word
# may have several translations. Words of one Chinese character are left out: they stand in others that mean something else.

PAIRS = """
    red 红色, blue 蓝色, green 绿色, white 白色, black 黑色, yellow 黄色, purple 紫色, grey 灰色, golden 金色, silver 银色,
    brown 棕色, pink 粉红, pink 粉色, orange 橙色, old 旧的, new 新的, beautiful 漂亮的, cheap 便宜的, wooden 木头的, copper 铜的,
    leather 皮革的, glass 玻璃的, plastic 塑料的, handmade 手工的, round 圆形的, square 方形的, foldable 折叠的, silk 丝绸的,
    ceramic 陶瓷的, lantern 灯笼, umbrella 雨伞, watch 手表, wallet 钱包, hat 帽子, scarf 围巾, glove 手套, suitcase 箱子,
    teapot 茶壶, cup 茶杯, vase 花瓶, mirror 镜子, comb 梳子, fan 扇子, chair 椅子, table 桌子, lamp 台灯, camera 相机,
    radio 收音机, clock 闹钟, sweater 毛衣, coat 外套, belt 皮带, ring 戒指, necklace 项链, bracelet 手镯, pen 钢笔, pencil 铅笔,
    notebook 笔记本, telescope 望远镜, kite 风筝, toy 玩具, hammer 锤子, bucket 水桶, basket 篮子, pillow 枕头, blanket 毯子,
    carpet 地毯, curtain 窗帘, key 钥匙, plate 盘子, kettle 水壶, mask 面具, statue 雕像, bell 铃铛, rope 绳子, ladder 梯子,
    cabbage 白菜, celery 芹菜, spinach 菠菜, potato 土豆, tomato 番茄, pumpkin 南瓜, mushroom 蘑菇, lamb 羊肉, chicken 鸡肉,
    duck 鸭肉, prawn 虾仁, crab 螃蟹, peanut 花生, walnut 核桃, pepper 辣椒, dumplings 饺子, noodle 面条, pie 馅饼, salad 沙拉,
    pancakes 煎饼, cat 小猫, dog 小狗, rabbit 兔子, tortoise 乌龟, parrot 鹦鹉, pigeon 鸽子, squirrel 松鼠, hamster 仓鼠,
    hedgehog 刺猬, goat 山羊, sheep 绵羊, pony 小马, donkey 毛驴, duck 鸭子, goose 大鹅, peacock 孔雀, owl 猫头鹰, fox 狐狸,
    monkey 猴子, lizard 蜥蜴, frog 青蛙, swan 天鹅, piano 钢琴, organ 风琴, violin 小提琴, cello 大提琴, guitar 吉他, flute 长笛,
    harp 竖琴, harmonica 口琴, accordion 手风琴, trumpet 小号, trombone 长号, ancient 古代, modern 现代, classical 古典,
    northern 北方, southern 南方, eastern 东部, western 西部, coastal 沿海, french 法语, german 德语, russian 俄语, japanese 日语,
    korean 韩语, thai 泰语, vietnamese 越南语, arabic 阿拉伯语, spanish 西班牙语, portuguese 葡萄牙语, italian 意大利语,
    greek 希腊语, polish 波兰语, dutch 荷兰语, swedish 瑞典语, norwegian 挪威语, danish 丹麦语, finnish 芬兰语, turkish 土耳其语,
    persian 波斯语, hindi 印地语, malay 马来语, czech 捷克语, hungarian 匈牙利语, tibetan 藏语, bicycle 自行车, motorbike 摩托车,
    car 小汽车, bus 公交车, truck 卡车, boat 小船, skateboard 滑板车, tractor 拖拉机, bakery 面包店, bookshop 书店, bank 银行,
    pharmacy 药店, factory 工厂, school 学校, theatre 剧院, museum 博物馆, library 图书馆, clinic 诊所, restaurant 饭店,
    collecting 收藏, studying 研究, carving 雕刻, drawing 绘制, photographing 拍摄, butterflies 蝴蝶, insects 昆虫, fossils 化石,
    mushrooms 蘑菇, lighthouses 灯塔, castles 城堡, windmills 风车, puppets 木偶, history 历史, literature 文学, philosophy 哲学,
    art 美术, music 音乐, architecture 建筑, mathematics 数学, physics 物理, chemistry 化学, medicine 医学, law 法律,
    economics 经济, geography 地理, religion 宗教, drama 戏剧, dance 舞蹈, poetry 诗歌, archaeology 考古, sculpture 雕塑,
    psychology 心理学, chinese 中国, european 欧洲, asian 亚洲, indian 印度, roman 罗马, comparative 比较, theoretical 理论,
    international 国际, january 一月, february 二月, march 三月, april 四月, may 五月, june 六月, july 七月, august 八月,
    september 九月, october 十月, november 十一月, december 十二月, dollars 美元, euros 欧元, spring 春天, summer 夏天,
    autumn 秋天, winter 冬天, morning 早上, evening 晚上, medal 奖章, doctor 医生, nurse 护士, lawyer 律师, judge 法官,
    journalist 记者, novelist 作家, poet 诗人, painter 画家, singer 歌手, cook 厨师, carpenter 木匠, blacksmith 铁匠, tailor 裁缝,
    hairdresser 理发师, engineer 工程师, architect 建筑师, designer 设计师, scientist 科学家, pharmacist 药剂师, dentist 牙医,
    vet 兽医, fisherman 渔民, miner 矿工, sailor 水手, pilot 飞行员, fire fighter 消防员, police officer 警察, postman 邮递员,
    translator 翻译, guide 导游, photographer 摄影师, musician 音乐家, dancer 舞蹈家, pianist 钢琴师, sculptor 雕塑家,
    baker 面包师, librarian 图书管理员, geologist 地质学家, historian 历史学家, botanist 植物学家, zoologist 动物学家,
    magician 魔术师, coach 教练, secretary 秘书, cleaner 清洁工, watchmaker 钟表匠, senior 高级, trainee 实习, born 出生,
    holiday 度假, married 结婚, teacher 老师, neighbour 邻居, house 房子, birthday 生日, wedding 婚礼, university 大学,
    salary 工资, debt 债务, food 食物, pet 宠物, colour 颜色, market 市场, train 火车, language 语言, hobby 爱好, animal 动物,
    instrument 乐器, volunteer 义工, band 乐队, weather 天气, newspaper 报纸, concert 音乐会, harvest 收成, rainbow 彩虹
"""

LEXICON = tuple((pair.rpartition(" ")[0].strip(), pair.rpartition(" ")[2]) for pair in " ".join(PAIRS.split()).split(", "))
